"""Background loops of a client that fail unexpectedly: they report the failure and continue."""

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import Any

import pytest

from sparrowmq import LitePullConsumer, NotStarted, Producer
from sparrowmq.backoff import Backoff
from sparrowmq.client.client import client_around, core_of
from sparrowmq.client.consuming import pull_loop
from sparrowmq.client.consuming.send_back import GivingBack
from sparrowmq.client.failures import keep_running
from sparrowmq.client.group import rebalance
from sparrowmq.client.group.group_consumer import core_of_consumer
from sparrowmq.client.group.lock_requests import LockRequests
from sparrowmq.client.group.offsets import RemoteOffsets
from sparrowmq.client.group.process_queue import ProcessQueue
from sparrowmq.client.group.running_info import ConsumeRates
from sparrowmq.client.heartbeats import Heartbeats
from sparrowmq.client.name_servers import NameServers
from sparrowmq.client.route_table import RouteTable, subscribe_queues
from sparrowmq.client.sessions import Sessions
from sparrowmq.net.calls import Response
from sparrowmq.protocol.message import Message, MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.route import TopicRoute
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from sparrowmq.testing.simulation import Simulation
from tests.client.members import GROUP, TOPIC, Member, create_topic, send, stored_offset

PLANTED = "planted: nobody expected this"


def fail_for_a_while(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[int]:
    """The next three calls of a function raise; how often it was called is counted."""
    real, calls = getattr(owner, name), list[int]()

    def failing(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) <= 3:
            raise RuntimeError(PLANTED)
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, failing)
    return calls


def errors(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.ERROR]


LOOPS = [
    (Heartbeats, "send_everywhere"),
    (RouteTable, "refresh"),
    (RemoteOffsets, "persist"),
    (LockRequests, "take"),
    (pull_loop, "decode_messages"),
    (rebalance, "group_members"),
    (ConsumeRates, "consumed"),
]
CONCURRENT = [(GivingBack, "give_back"), (ProcessQueue, "expired")]
ORDERLY = [(ProcessQueue, "first"), (ProcessQueue, "replace")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "orderly"),
    [
        *((*loop, False) for loop in LOOPS + CONCURRENT),
        *((*loop, True) for loop in LOOPS + ORDERLY),
    ],
    ids=lambda part: getattr(part, "__name__", str(part)),
)
def test_a_member_keeps_running_after_a_failure_in_any_of_its_loops(
    owner: Any,
    name: str,
    orderly: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail_once(message: MessageExt) -> None:
        if message.body == b"again" and not message.reconsume_times:
            raise ValueError("not today")

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, fail_once, orderly=orderly, max_reconsume_times=16)
        sim.advance(2)
        calls = fail_for_a_while(monkeypatch, owner, name)
        send(sim, b"a", b"again")
        sim.advance(200)
        send(sim, b"b")
        sim.advance(60)
        assert {b"a", b"again", b"b"} == set(member.got)
        assert member.consumer.failure is None
        member.leave()
        assert stored_offset(sim) == 3
    planted = [record for record in errors(caplog) if PLANTED in str(record.exc_info)]
    assert calls
    assert len(planted) == min(len(calls), 3)


def test_a_topic_that_fails_leaves_the_others_their_rounds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also those that come after it in the alphabet."""

    def refuse_some(topic: str, route: TopicRoute) -> list[MessageQueue]:
        if topic == "a-broken-one":
            raise KeyError(PLANTED)
        return subscribe_queues(topic, route)

    monkeypatch.setattr(rebalance, "subscribe_queues", refuse_some)
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        create_topic(sim, topic="a-broken-one")
        member = Member(sim, subscriptions={TOPIC: "*", "a-broken-one": "*"})
        send(sim, b"0")
        sim.advance(60)
        assert member.got == [b"0"]
        member.leave()
    told = errors(caplog)
    assert 4 <= len(told) <= 10  # after 1, 2, 4, 8, 16 s and then every 20 s
    assert all("a-broken-one" in record.getMessage() for record in told)


# ---- what servers say


def test_an_invalid_route_from_a_name_server_ends_no_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def say_nonsense(*_: object, **__: object) -> Response:
        return Response(0, "", {}, b"{not a route")

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim)
        sim.advance(2)
        with monkeypatch.context() as patch:
            patch.setattr(NameServers, "call", say_nonsense)
            sim.advance(100)
        send(sim, b"0")
        sim.advance(60)
        assert member.consumer.failure is None
        assert member.got == [b"0"]
        member.leave()


# ---- a client that has died anyway


def dying_client(sim: RunningCluster) -> tuple[LitePullConsumer, Callable[[BaseException], None]]:
    """A consumer that was started, and what makes a task of its client raise."""
    client = sim.client_on("member")
    consumer = LitePullConsumer(GROUP, {TOPIC: "*"}, client=client)

    async def start() -> None:
        await client.start()
        await consumer.start()

    def kill(error: BaseException) -> None:
        async def fail() -> None:
            raise error

        async def spawn() -> None:
            core_of(client).tasks.create_task(fail())

        sim.run(spawn(), on=sim.host("member"))

    sim.run(start(), on=sim.host("member"))
    return consumer, kill


class OfItsOwn(BaseException):
    """Not an Exception."""


@pytest.mark.parametrize("cause", [MemoryError("no more"), OfItsOwn("no more")], ids=repr)
def test_a_client_that_died_is_reported_at_once_with_its_groups_and_the_cause(
    cause: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        consumer, kill = dying_client(sim)
        sim.advance(2)
        kill(cause)
        sim.advance(0.1)
        (told,) = errors(caplog)
        assert GROUP in told.getMessage()
        assert told.exc_info is not None
        assert told.exc_info[1] is consumer.failure is cause
        with pytest.raises(NotStarted, match="no more") as raised:
            sim.run(consumer.poll(), on=sim.host("member"))
        assert raised.value.__cause__ is cause
        with pytest.raises(NotStarted):
            consumer.assignment()
        sim.run(consumer.stop(), on=sim.host("member"))
        with pytest.raises(BaseExceptionGroup) as group:
            sim.run(core_of_consumer(consumer).stop(), on=sim.host("member"))
        assert group.value.exceptions == (cause,)


def test_a_producer_of_a_failed_client_raises_an_error_that_names_the_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        async with Producer("p", client=client_around(core_of_consumer(consumer))) as producer:
            core_of_consumer(consumer).tasks.create_task(fail())
            await asyncio.sleep(0.1)
            with pytest.raises(NotStarted, match="no more"):
                await producer.send(Message(TOPIC, b"x"))

    async def fail() -> None:
        raise MemoryError("no more")

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        consumer, _ = dying_client(sim)
        sim.run(work(), on=sim.host("member"))


def test_run_raises_the_error_that_ended_its_consumer() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim)

        async def kill() -> None:
            async def fail() -> None:
                raise MemoryError("no more")

            core_of_consumer(member.consumer).tasks.create_task(fail())

        waiting = member.host.start(member.consumer.stopped())
        sim.run(kill(), on=member.host)
        with pytest.raises(MemoryError, match="no more"):
            sim.wait(waiting)


def test_cancelled_tasks_are_reported_too_and_the_stop_is_clean(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Some programs cancel every task on the loop to end, and some keep running afterwards."""

    async def cancel_all() -> None:
        for task in asyncio.all_tasks():
            if task.get_name() == "task owner":
                task.cancel()

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        consumer, _ = dying_client(sim)
        sim.run(cancel_all(), on=sim.host("member"))
        sim.advance(0.1)
        assert isinstance(consumer.failure, asyncio.CancelledError)
        sim.run(consumer.stop(), on=sim.host("member"))
        sim.run(core_of_consumer(consumer).stop(), on=sim.host("member"))
    assert f"has ended without stop(), and with it groups {GROUP}" in caplog.text


def test_keepalives_that_fail_begin_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A member without keep-alives would count as dead, and lose its queues to others."""
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim)
        sim.advance(2)
        calls = fail_for_a_while(monkeypatch, Sessions, "live")
        sim.brokers["broker-a"].restart()
        sim.advance(60)
        assert len(calls) > 3
        assert "session keep-alive ended unexpectedly" in caplog.text
        caplog.clear()
        sim.advance(60)
        assert "no keep-alive for" not in caplog.text
        send(sim, b"0")
        sim.advance(5)
        assert member.got == [b"0"]


# ---- the pauses


def test_a_loop_that_keeps_failing_begins_again_after_growing_pauses_and_a_good_one_at_once() -> (
    None
):
    began_s: list[float] = []

    async def loop() -> None:
        began_s.append(sim.now_s)
        if len(began_s) == 8:
            await asyncio.sleep(100)
        if len(began_s) < 10:
            raise RuntimeError(PLANTED)

    with Simulation(1) as sim:
        log = logging.getLogger("test")
        sim.run(keep_running(loop, "it", log=log, backoff=Backoff()), on=sim.host("here"))
    pauses_s = [after - before for before, after in itertools.pairwise(began_s)]
    assert pauses_s == [1, 2, 4, 8, 16, 30, 30, 101, 2]


def test_closing_a_loop_starts_no_other() -> None:
    """As tasks are whose event loop is gone."""

    async def wait() -> None:
        await asyncio.Event().wait()

    async def work() -> None:
        log = logging.getLogger("test")
        kept = keep_running(wait, "it", log=log, backoff=Backoff())
        kept.send(None)
        kept.close()

    asyncio.run(work())
