"""The crash gate: 16 senders, a broker that is killed, everything acknowledged is read back.

The slow test kills 20 times in each flush mode and reads 100,000 messages; the fast one kills once.
"""

import pytest

from tests.faults.kills import kill_broker
from tests.faults.scorecard import kills


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_nothing_acknowledged_is_lost_when_the_broker_is_killed(flush: str) -> None:
    result = kill_broker(0, flush, kills=1, acknowledged_each=100)
    assert result, str(result)
    assert result.verdict.ok >= 100


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_however_often_the_broker_is_killed() -> None:
    scored = kills(seed=0, small=True)
    print(scored.counts)
    assert scored.failures == []


@pytest.mark.slow
def test_planted_acknowledging_before_appending_is_noticed() -> None:
    result = kill_broker(0, "async", kills=2, module="tests.faults.planted_broker")
    assert result.verdict.lost
