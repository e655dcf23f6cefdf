"""Members of a group join, leave and crash: nothing is lost, and few messages are repeated."""

from collections.abc import Callable

import pytest

from sparrowmq.client.group.queue_ownership import QueueOwnership
from sparrowmq.protocol.message import MessageQueue
from tests.faults.churn import Call, History, is_shared_out, judge
from tests.faults.churn_processes import churn_in_processes
from tests.faults.churn_sim import churn_in_simulation
from tests.faults.handover_planted import plant_early_commits, plant_no_draining
from tests.faults.scorecard_clients import churn


def test_a_few_members_that_join_leave_and_crash_lose_nothing() -> None:
    result = judge(0, churn_in_simulation(0, changes=8))
    assert result, str(result)


@pytest.mark.slow
def test_members_that_join_leave_and_crash_lose_nothing_and_hand_over_without_repeats() -> None:
    scored = churn(seed=0, small=True)
    print(scored.counts)
    assert scored.failures == []


@pytest.mark.slow
def test_members_in_processes_lose_nothing_and_hand_over_without_repeats() -> None:
    history = churn_in_processes(seed=1, changes=10)
    history.settled_s = 0.0  # how busy this machine is decides, the simulation measures it
    result = judge(1, history)
    assert result, str(result)


def plant_no_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lock_nothing(ownership: QueueOwnership, queues: list[MessageQueue]) -> None:
        """As if queues were not locked."""

    monkeypatch.setattr(QueueOwnership, "lock", lock_nothing)


@pytest.mark.parametrize(
    ("plant", "noticed"),
    [
        pytest.param(plant_no_draining, "handled twice", marks=pytest.mark.slow),
        (plant_early_commits, "lost"),
        pytest.param(plant_no_leases, "handled twice", marks=pytest.mark.slow),
    ],
)
def test_planted_bugs_of_the_hand_over_are_noticed(
    plant: Callable[[pytest.MonkeyPatch], None], noticed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    result = judge(3, churn_in_simulation(3, changes=20))
    assert any(noticed in problem for problem in result.problems), str(result)


def test_only_a_death_explains_a_second_delivery_of_what_was_not_committed() -> None:
    first, again = Call("a", 0, (4, 5), 1.0, 1.1), Call("b", 0, (4, 5), 2.0, 2.1)
    history = History(calls=[again, first], stored={0: 0})
    assert judge(0, history).problems == [
        "2 handled twice: queue 0 offset 4 by a and again, queue 0 offset 5 by a and again"
    ]
    history.killed = {"a": {0: 5}}
    result = judge(0, history)
    assert result.redelivered == 1
    assert result.problems == ["1 handled twice: queue 0 offset 4 by a and again"]


def test_a_message_whose_handler_never_returned_counts_as_lost() -> None:
    history = History(calls=[Call("a", 0, (0,), 1.0)], stored={0: 1})
    assert judge(0, history).problems == ["1 lost: (0, 0)"]


def test_queues_count_as_shared_out_once_each_has_one_owner_and_loads_are_even() -> None:
    assert is_shared_out([[0, 1], [2]], 3)
    assert not is_shared_out([[0, 1], [1, 2]], 3)
    assert not is_shared_out([[0, 1], []], 2)
    assert not is_shared_out([[0], [1]], 3)
    assert not is_shared_out([], 3)
