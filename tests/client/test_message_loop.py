"""`async for message in consumer`: leaving the body acknowledges, an exception does not."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sparrowmq import MessageExt, PushConsumer
from sparrowmq.client.group.broker_requests import routes
from sparrowmq.client.group.group_consumer import core_of_consumer
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import GROUP, TOPIC, create_topic, send, stored_offset

Work = Callable[[PushConsumer], Awaitable[None]]


def consume(sim: RunningCluster, work: Work, **options: Any) -> None:
    """Run work with a consumer, inside of its block."""

    async def live() -> None:
        client = sim.client_on("member", routes)
        await client.start()
        try:
            async with PushConsumer(
                GROUP,
                {TOPIC: "*"},
                client=client,
                threads=InlineWorkers(),
                from_where="FIRST_OFFSET",
                **options,
            ) as consumer:
                await work(consumer)
        finally:
            await client.stop()

    sim.run(live(), on=sim.host("member"))


def everything(got: list[tuple[bytes, int]], last: bytes) -> Work:
    """Read up to a message."""

    async def work(consumer: PushConsumer) -> None:
        async for message in consumer:
            got.append((message.body, message.reconsume_times))
            if message.body == last:
                break

    return work


@pytest.mark.parametrize("orderly", [False, True])
def test_a_loop_gets_one_message_at_a_time_and_acknowledges_each_when_it_moves_on(
    orderly: bool,
) -> None:
    got: list[tuple[bytes, int]] = []
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"a", b"b", b"c")
        consume(sim, everything(got, b"c"), orderly=orderly)
        assert got == [(b"a", 0), (b"b", 0), (b"c", 0)]
        assert stored_offset(sim) == 3


@pytest.mark.parametrize("orderly", [False, True])
def test_messages_the_loop_did_not_reach_are_left_to_the_next_consumer(orderly: bool) -> None:
    got: list[tuple[bytes, int]] = []
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"a", b"b", b"c", b"d")
        consume(sim, everything(got, b"b"), orderly=orderly)
        assert stored_offset(sim) == 2
        consume(sim, everything(got, b"d"), orderly=orderly)
        assert got == [(b"a", 0), (b"b", 0), (b"c", 0), (b"d", 0)]
        assert sim.now_s < 20  # a stop that waits for a handler takes 30 s


def test_a_loop_needs_the_block_of_its_consumer() -> None:
    with pytest.raises(ValueError, match="needs `async with consumer:` around it"):
        aiter(PushConsumer(GROUP, {TOPIC: "*"}))


def test_an_exception_in_the_body_fails_the_message_which_is_retried_later() -> None:
    got: list[tuple[bytes, int]] = []

    async def fail(consumer: PushConsumer) -> None:
        async for message in consumer:
            got.append((message.body, message.reconsume_times))
            if message.body == b"b":
                raise ZeroDivisionError("in the body")

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"a", b"b", b"c")
        with pytest.raises(ZeroDivisionError):
            consume(sim, fail)
        # The broker has it for a retry, so that it does not stop the others
        assert stored_offset(sim) == 2
        consume(sim, everything(got, b"b"))
        assert got == [(b"a", 0), (b"b", 0), (b"c", 0), (b"b", 1)]


def test_a_body_that_is_cancelled_has_neither_done_its_message_nor_failed() -> None:
    got: list[tuple[bytes, int]] = []

    async def cancelled(consumer: PushConsumer) -> None:
        async for message in consumer:
            if message.body == b"b":
                await asyncio.sleep(3600)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"a", b"b", b"c")

        async def until_cancelled(consumer: PushConsumer) -> None:
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_later(5, task.cancel)
            await cancelled(consumer)

        with pytest.raises(asyncio.CancelledError):
            consume(sim, until_cancelled)
        assert stored_offset(sim) == 1
        consume(sim, everything(got, b"c"))
        assert got == [(b"b", 0), (b"c", 0)]


def test_a_second_loop_in_the_block_gets_the_message_again_at_which_the_first_was_left() -> None:
    got: list[tuple[bytes, int]] = []

    async def twice(consumer: PushConsumer) -> None:
        try:
            async for message in consumer:
                got.append((message.body, message.reconsume_times))
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        await everything(got, b"a")(consumer)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"a")
        consume(sim, twice)
        assert got == [(b"a", 0), (b"a", 1)]


def test_a_stop_from_elsewhere_waits_for_the_body_and_ends_the_loop() -> None:
    seen: list[str] = []

    async def work(consumer: PushConsumer) -> None:
        async def stop() -> None:
            await consumer.stop()
            seen.append("stopped")

        async with asyncio.TaskGroup() as tasks:
            async for message in consumer:
                if message.body == b"a":
                    tasks.create_task(stop())
                await asyncio.sleep(2)
                seen.append(f"done with {message.body.decode()}")
            seen.append("the loop has ended")

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"a", b"b")
        consume(sim, work)
        assert seen[0] == "done with a"
        assert set(seen[1:]) == {"stopped", "the loop has ended"}
        assert stored_offset(sim) == 1


def test_a_body_cannot_wait_for_its_own_end() -> None:
    async def work(consumer: PushConsumer) -> None:
        async for _ in consumer:
            with pytest.raises(RuntimeError, match="leave the loop with break"):
                await consumer.stop()
            break

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"a")
        consume(sim, work)
        assert stored_offset(sim) == 1


def test_a_message_that_no_body_took_does_not_hold_up_the_end() -> None:
    async def work(consumer: PushConsumer) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await anext(aiter(consumer))
        await sim_send()
        await asyncio.sleep(5)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)

        async def sim_send() -> None:
            await sim.client.send(TOPIC, b"late", queue_id=0)

        consume(sim, work)
        assert sim.now_s < 20  # a stop that waits for a handler takes 30 s
        assert stored_offset(sim) == 0


def test_a_handler_and_a_loop_exclude_each_other() -> None:
    async def handle(message: MessageExt) -> None:
        raise AssertionError("nothing is consumed here")

    async def work(consumer: PushConsumer) -> None:
        await consumer.start(each=handle)
        with pytest.raises(ValueError, match="a handler consumes the messages"):
            aiter(consumer)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        consume(sim, work)


def test_a_loop_takes_no_batches() -> None:
    async def work(consumer: PushConsumer) -> None:
        with pytest.raises(ValueError, match="batch is 4"):
            await anext(aiter(consumer))

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        consume(sim, work, batch=4)


def test_a_loop_whose_consumer_ended_by_itself_raises_the_cause() -> None:
    cause = MemoryError("no more")

    async def fail() -> None:
        raise cause

    async def work(consumer: PushConsumer) -> None:
        with pytest.raises(MemoryError) as raised:
            async for _ in consumer:
                core_of_consumer(consumer).tasks.create_task(fail())
        assert raised.value is cause

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"a")
        with pytest.raises(BaseExceptionGroup):  # of the client's stop
            consume(sim, work)
