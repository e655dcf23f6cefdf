"""An ordered group keeps its order while members join, leave, freeze and crash."""

from collections.abc import Callable

import pytest

from sparrowmq.client.consuming.orderly_consumption import OrderlyConsumption
from sparrowmq.client.group.held_queue import HeldQueue
from sparrowmq.client.group.queue_ownership import QueueOwnership
from sparrowmq.protocol.message import MessageQueue
from tests.faults.churn import Call
from tests.faults.handover_planted import plant_early_commits, plant_no_draining
from tests.faults.order_under_churn import Fault, OrderHistory, judge_order
from tests.faults.order_under_churn_processes import order_in_processes
from tests.faults.order_under_churn_sim import order_in_simulation
from tests.faults.scorecard_clients import order_under_churn


def test_order_holds_while_a_few_members_come_go_and_crash() -> None:
    result = judge_order(0, order_in_simulation(0, changes=8, freezes=0))
    assert result, str(result)


@pytest.mark.slow
def test_order_holds_while_members_come_go_crash_and_freeze() -> None:
    scored = order_under_churn(seed=0, small=True)
    print(scored.counts)
    assert scored.failures == []


@pytest.mark.slow
def test_order_holds_among_processes_that_are_killed() -> None:
    result = judge_order(2, order_in_processes(2, messages=5_000, changes=8, freezes=0))
    assert result, str(result)


def plant_no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lock_nothing(ownership: QueueOwnership, queues: list[MessageQueue]) -> None:
        """As if queues were not locked."""

    async def always(ownership: QueueOwnership, held: HeldQueue) -> bool:
        return True

    monkeypatch.setattr(QueueOwnership, "lock", lock_nothing)
    monkeypatch.setattr(QueueOwnership, "has_lock", always)


def plant_two_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OrderlyConsumption, "claim", lambda consuming, held: True)


@pytest.mark.parametrize(
    ("plant", "noticed"),
    [
        pytest.param(plant_no_locks, "goes back", marks=pytest.mark.slow),
        pytest.param(plant_two_workers, "goes back", marks=pytest.mark.slow),
        pytest.param(plant_no_draining, "goes back", marks=pytest.mark.slow),
        (plant_early_commits, "skips"),
    ],
)
def test_planted_a_missing_guard_of_the_order_is_noticed(
    plant: Callable[[pytest.MonkeyPatch], None], noticed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    result = judge_order(0, order_in_simulation(0, changes=20, freezes=0))
    assert any(noticed in problem for problem in result.problems), str(result)


def judged(*calls: Call, faults: tuple[Fault, ...] = (), stored: int = 4) -> list[str]:
    history = OrderHistory(calls=list(calls), stored={0: stored}, faults=list(faults))
    return judge_order(0, history).problems


A = Call("a", 0, (0, 1), 1.0, 2.0)


def test_consecutive_calls_are_in_order() -> None:
    assert judged(A, Call("b", 0, (2, 3), 2.0, 3.0)) == []


def test_going_back_is_excused_only_by_a_member_that_died_or_froze_before_it_committed() -> None:
    again = Call("b", 0, (1, 2, 3), 5.0, 6.0)
    wrong = ["queue 0 offset 1 by b: goes back from 2 after a"]
    assert judged(A, again) == wrong
    assert judged(A, again, faults=(Fault("a", 3.0),)) == []
    assert judged(A, again, faults=(Fault("a", 3.0, 9.0),)) == []
    assert judged(A, again, faults=(Fault("a", 3.0, progress={0: 2}),)) == wrong
    assert judged(A, again, faults=(Fault("a", 5.5),)) == wrong
    assert judged(A, again, faults=(Fault("a", 0.1, 0.2),)) == wrong


def test_a_frozen_owner_that_resumes_at_its_old_offset_is_noticed() -> None:
    b = Call("b", 0, (0, 1, 2), 5.0, 6.0)
    late = Call("a", 0, (2, 3), 9.5, 9.6)
    assert judged(A, b, late, faults=(Fault("a", 3.0, 9.0),)) == [
        "queue 0 offset 2 by a: goes back from 3 after b"
    ]


def test_two_calls_at_once_are_noticed_unless_the_first_was_frozen() -> None:
    b = Call("b", 0, (2, 3), 1.5, 3.0)
    assert judged(A, b) == ["queue 0 offset 2 by b: begins while another call runs"]
    assert judged(A, b, faults=(Fault("a", 1.2, 1.9),)) == []


def test_skipped_and_missing_messages_are_noticed() -> None:
    assert judged(A, Call("b", 0, (3,), 2.0, 3.0)) == ["queue 0 offset 3 by b: skips from 2"]
    assert judged(A) == ["queue of 4 messages was consumed up to 2 only"]
    assert judged(Call("a", 0, (1, 0, 2, 3), 1.0, 2.0))


def test_a_slow_take_over_is_noticed() -> None:
    calls = A, Call("b", 0, (2, 3), 9.0, 9.5)
    assert judged(*calls, faults=(Fault("a", 3.0, held=(0,)),)) == []
    slow = Fault("a", 3.0, held=(0,), is_measured=True)
    assert judged(*calls, faults=(slow,)) == ["queues of a killed owner taken over after 6.0 s"]
    assert judged(*calls, faults=(Fault("a", 3.0, 99.0, (0,), {}, True),)) == []
