"""Handlers that still run when their consumer stops, or when the interpreter ends."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from sparrowmq import MessageExt
from sparrowmq.client.client import core_of
from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.client.group import group_consumer
from sparrowmq.client.group.broker_requests import routes
from sparrowmq.net.workers import InlineWorkers, WorkersClosed
from sparrowmq.protocol.heartbeat import ConsumeFromWhere
from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.members import GROUP, TOPIC, Member, create_topic, send, stored_offset
from tests.client.simulated_push import push_consumer


def test_a_stop_reports_handlers_that_do_not_end(caplog: pytest.LogCaptureFixture) -> None:
    async def hang(message: MessageExt) -> None:
        await asyncio.Event().wait()

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, hang, stop_within_s=2)
        send(sim, b"x")
        sim.advance(1)
        member.leave()
        assert f"handlers of {GROUP} did not end within 2 s" in caplog.text


def test_two_concurrent_stops_both_wait_for_handlers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handled: list[bytes] = []
    began = asyncio.Event()

    async def take_a_while(messages: Sequence[MessageExt]) -> None:
        began.set()
        await asyncio.sleep(5)
        handled.extend(message.body for message in messages)

    async def program(consumer: PushConsumer) -> float:
        async with consumer:
            await consumer.run(take_a_while)
        return sim.now_s

    async def work() -> None:
        # The consumer's own client, as users have it: the simulated one replaces it.
        core = core_of(sim.client_on("member", routes))
        monkeypatch.setattr(group_consumer, "ClientCore", lambda config, routes: core)
        consumer = PushConsumer(
            GROUP,
            {TOPIC: "*"},
            threads=InlineWorkers(),
            from_where=ConsumeFromWhere.FIRST_OFFSET,
        )
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(program(consumer))
            await began.wait()
            begun_s = sim.now_s
            await consumer.stop()  # as a handler of signals does
            assert sim.now_s - begun_s >= 5
        assert running.result() - begun_s >= 5

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"x")
        sim.run(work(), on=sim.host("member"))
        assert handled == [b"x"]
        assert stored_offset(sim) == 1


def test_a_handler_cannot_wait_for_its_own_end(caplog: pytest.LogCaptureFixture) -> None:
    async def stop(message: MessageExt) -> None:
        if not message.reconsume_times:
            await member.consumer.stop()

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, stop)
        send(sim, b"x")
        sim.advance(15)
        assert member.got == [b"x", b"x"]
        assert "would wait for the handler itself" in caplog.text


# ---- the end of the interpreter


class EndedInterpreter(InlineWorkers):
    """What threads do while the interpreter waits for the last of them."""

    async def run(self, *ignored: Any, **more: Any) -> Any:
        raise WorkersClosed("cannot schedule new futures after interpreter shutdown")


def test_a_message_that_comes_while_the_interpreter_ends_has_not_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        client = sim.client_on("member", routes)
        await client.start()
        consumer = push_consumer(client, EndedInterpreter())
        await consumer.start(lambda messages: None)
        await asyncio.sleep(30)
        await consumer.stop()
        await client.stop()

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"x")
        sim.run(work(), on=sim.host("member"))
        assert stored_offset(sim) == 0
        assert " failed for " not in caplog.text
        assert "ends before stop(), for its threads accept no more work" in caplog.text


def test_a_cancelled_run_ends_at_once_and_its_consumer_can_still_be_stopped() -> None:
    got: list[bytes] = []

    async def handle(messages: Sequence[MessageExt]) -> None:
        got.extend(message.body for message in messages)

    async def work() -> None:
        client = sim.client_on("member", routes)
        await client.start()
        consumer = push_consumer(client)
        running = asyncio.ensure_future(consumer.run(handle))
        await asyncio.sleep(5)
        running.cancel()
        begun_s = sim.now_s
        with pytest.raises(asyncio.CancelledError):
            await running
        assert sim.now_s == begun_s
        await asyncio.sleep(100)  # its queue's lock is renewed, or it would be lost
        await sim.client.send(TOPIC, b"x")
        await asyncio.sleep(1)
        await consumer.stop()
        await client.stop()

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        sim.run(work(), on=sim.host("member"))
        assert got == [b"x"]
        assert stored_offset(sim) == 1
