"""The checker notices each kind of broken promise, planted once."""

from collections.abc import Callable

import pytest

from tests.faults.checker import Ledger, MessageId, ReadBack, body_of, properties_of

IDS = [MessageId("p", number) for number in range(4)]


def read(number: int, offset: int, *, queue_id: int = 0, body: bytes | None = None) -> ReadBack:
    message = MessageId("p", number)
    return ReadBack(
        "t", queue_id, offset, body_of(message) if body is None else body, properties_of(message)
    )


@pytest.fixture
def ledger() -> Ledger:
    ledger = Ledger()
    for message in IDS:
        ledger.attempt(message)
    ledger.ok(IDS[0])
    ledger.ok(IDS[1])
    ledger.fail(IDS[3])
    return ledger


def test_acknowledged_messages_that_are_read_are_fine(ledger: Ledger) -> None:
    verdict = ledger.check([read(0, 7), read(1, 8)])
    assert verdict
    assert (verdict.attempted, verdict.ok, verdict.unknown, verdict.failed) == (4, 2, 1, 1)
    assert "nothing wrong" in str(verdict)


def test_an_unknown_message_may_be_there_or_not(ledger: Ledger) -> None:
    assert ledger.check([read(0, 0), read(1, 1), read(2, 2)])


Plant = Callable[[list[ReadBack]], list[ReadBack]]


@pytest.mark.parametrize(
    ("problem", "plant"),
    [
        ("lost", lambda found: found[:1]),
        ("phantom", lambda found: [*found, read(9, 2)]),
        ("refused but read", lambda found: [*found, read(3, 2)]),
        ("damaged", lambda found: [found[0], read(1, 1, body=b"p-1|x")]),
        ("damaged", lambda found: [found[0], found[1]._replace(properties=b"UNIQ_KEY\x01p-1\x02")]),
        ("damaged", lambda found: [*found, ReadBack("t", 0, 2, b"", b"")]),
        ("twice", lambda found: [*found, read(1, 2)]),
        ("out of order", lambda found: [read(1, 0), read(0, 1)]),
        ("gaps", lambda found: [found[0], found[1]._replace(queue_offset=2)]),
    ],
)
def test_a_planted_problem_is_noticed(ledger: Ledger, problem: str, plant: Plant) -> None:
    verdict = ledger.check(plant([read(0, 0), read(1, 1)]))
    assert not verdict
    assert problem in verdict.problems()


def test_order_is_judged_per_queue(ledger: Ledger) -> None:
    assert ledger.check([read(1, 0, queue_id=1), read(0, 0, queue_id=0)])
