"""The clock is set while transactions are open: they are asked about as if it had not been."""

from collections.abc import Iterator

import pytest

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.names import TRANS_CHECK_MAX_TIME_TOPIC
from sparrowmq.protocol.sys_flag import TRANSACTION_COMMIT
from tests.broker.delivery_world import DeliveryWorld, Peer, orders_world
from tests.broker.test_clock_steps import HOUR, RESTARTS, SECOND, STEPS_MS, restart
from tests.broker.transaction_world import answer, bodies, end, half, producer

FIRST_MS, AGAIN_MS = 6 * SECOND, 30 * SECOND


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with orders_world() as world:
        yield world


def questions(world: DeliveryWorld, peer: Peer, until_ms: int) -> list[int]:
    """When a producer is asked; the broker looks at least every second."""
    asked: list[int] = []
    while True:
        world.deliver()
        asked += [world.elapsed_ms] * (len(peer.calls) - len(asked))
        if world.elapsed_ms >= until_ms:
            return asked
        world.now_ms += 250


@pytest.mark.parametrize("how", RESTARTS)
@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_questions_come_when_they_are_due(world: DeliveryWorld, step_ms: int, how: str) -> None:
    half(world)
    sent_ms = world.elapsed_ms
    world.now_ms += 2 * SECOND
    world.set_clock(step_ms)
    world.deliver()
    restart(world, how)
    peer = producer(world)
    asked = questions(world, peer, sent_ms + FIRST_MS + 2 * AGAIN_MS)
    assert asked == [sent_ms + FIRST_MS + number * AGAIN_MS for number in range(3)]
    answer(world, peer, TRANSACTION_COMMIT)
    assert bodies(world) == [b"an order"]


@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_questions_after_a_step_come_when_they_are_due(world: DeliveryWorld, step_ms: int) -> None:
    """The clock is set between the first and the second question."""
    half(world)
    sent_ms = world.elapsed_ms
    peer = producer(world)
    questions(world, peer, sent_ms + FIRST_MS + SECOND)
    world.set_clock(step_ms)
    peer.calls.clear()
    (asked_ms,) = questions(world, peer, sent_ms + FIRST_MS + AGAIN_MS + SECOND)
    assert asked_ms == sent_ms + FIRST_MS + AGAIN_MS


@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_a_clock_step_while_off_delays_no_check_beyond_its_interval(
    world: DeliveryWorld, step_ms: int
) -> None:
    half(world)
    world.now_ms += 2 * SECOND
    world.stop()
    world.set_clock(step_ms)
    world.boots += 1
    world.start()
    started_ms = world.elapsed_ms
    (asked_ms,) = questions(world, producer(world), started_ms + FIRST_MS)
    assert asked_ms <= started_ms + FIRST_MS


@pytest.mark.parametrize("step_ms", [*STEPS_MS, 30 * 24 * HOUR])
def test_setting_the_clock_abandons_no_transaction(world: DeliveryWorld, step_ms: int) -> None:
    half(world)
    world.set_clock(step_ms)
    world.pass_time(60)
    assert world.messages(TRANS_CHECK_MAX_TIME_TOPIC) == []
    peer = producer(world)
    world.pass_time(10)
    assert peer.calls
    answer(world, peer, TRANSACTION_COMMIT)
    assert bodies(world) == [b"an order"]


@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_a_commit_is_late_after_the_requested_immunity_time(
    world: DeliveryWorld, step_ms: int
) -> None:
    in_time, too_late = (half(world, CHECK_IMMUNITY_TIME_IN_SECONDS="20") for _ in range(2))
    world.now_ms += 19 * SECOND
    world.set_clock(step_ms)
    assert end(world, in_time, TRANSACTION_COMMIT).code == ResponseCode.SUCCESS
    world.now_ms += 2 * SECOND
    assert end(world, too_late, TRANSACTION_COMMIT).code == ResponseCode.ILLEGAL_OPERATION
