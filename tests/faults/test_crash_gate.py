"""The crash gate: 16 senders, 20 kills in each flush mode, everything acknowledged is read back."""

from tests.faults.kills import kill_broker
from tests.faults.scorecard import kills


def test_nothing_acknowledged_is_lost_however_often_the_broker_is_killed() -> None:
    scored = kills(seed=0, small=True)
    print(scored.counts)
    assert scored.failures == []


def test_planted_acknowledging_before_appending_is_noticed() -> None:
    result = kill_broker(0, "async", kills=2, module="tests.faults.planted_broker")
    assert result.verdict.lost
