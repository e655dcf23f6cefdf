"""Starting and stopping: in blocks and without, twice, never, failing, on another loop."""

import asyncio
import queue
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from sparrowmq import Client, ClientConfig, MessageExt, NotStarted, blocking
from sparrowmq.client.background_loop import loop_of_process
from sparrowmq.client.consuming.lite_pull_consumer import LitePullConsumer
from sparrowmq.client.consuming.pull_consumer import PullConsumer
from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.client.consuming.scheduled_pull import ScheduledPull, consumer_of
from sparrowmq.client.sending.producer import Producer
from sparrowmq.protocol.heartbeat import ConsumeFromWhere
from sparrowmq.protocol.message import Message
from sparrowmq.testing import Cluster
from sparrowmq.testing.held_port import HeldPort
from tests.client.members import GROUP, TOPIC
from tests.patience import PATIENCE_S


async def ignore(*ignored: Any) -> None:
    pass


MEMBERS: dict[str, Callable[..., Any]] = {
    "producer": lambda **settings: Producer(GROUP, **settings),
    "push": lambda **settings: PushConsumer(GROUP, {TOPIC: "*"}, **settings),
    "lite pull": lambda **settings: LitePullConsumer(GROUP, {TOPIC: "*"}, **settings),
    "pull": lambda **settings: PullConsumer(GROUP, [TOPIC], **settings),
    "scheduled pull": lambda **settings: ScheduledPull(GROUP, {TOPIC: ignore}, **settings),
}


def started(member: Any) -> Coroutine[Any, Any, None]:
    starting: Coroutine[Any, Any, None] = (
        member.start(ignore) if isinstance(member, PushConsumer) else member.start()
    )
    return starting


def at_nobody(work: Callable[[str], Coroutine[Any, Any, None]]) -> None:
    """Run something that is given the address of a name server which is not there."""
    with HeldPort() as port:
        asyncio.run(work(f"127.0.0.1:{port.port}"))


@pytest.mark.parametrize("turns", range(4))
@pytest.mark.parametrize("kind", MEMBERS)
def test_a_start_that_is_cancelled_early_leaves_nothing_running(kind: str, turns: int) -> None:
    async def work(servers: str) -> None:
        member = MEMBERS[kind](name_servers=servers)
        async with asyncio.TaskGroup() as tasks:
            starting = tasks.create_task(started(member))
            for _ in range(turns):
                await asyncio.sleep(0)
            starting.cancel()
        await member.stop()
        assert running_clients() == 0

    at_nobody(work)


def running_clients() -> int:
    return sum(task.get_name() == "task owner" for task in asyncio.all_tasks())


@pytest.mark.parametrize("kind", MEMBERS)
def test_stopping_what_was_never_started_does_nothing(kind: str) -> None:
    async def work(servers: str) -> None:
        await MEMBERS[kind](name_servers=servers).stop()

    at_nobody(work)


@pytest.mark.parametrize("kind", MEMBERS)
def test_members_started_without_a_block_leave_nothing_behind(kind: str) -> None:
    async def work(servers: str) -> None:
        member = MEMBERS[kind](name_servers=servers)
        await started(member)
        await member.stop()
        await member.stop()
        assert running_clients() == 0
        with pytest.raises(NotStarted, match="create a new one"):
            await started(member)

    at_nobody(work)


@pytest.mark.parametrize("kind", MEMBERS)
def test_a_second_start_is_refused_and_the_first_keeps_running(kind: str) -> None:
    async def work(servers: str) -> None:
        member = MEMBERS[kind](name_servers=servers)
        await started(member)
        with pytest.raises(ValueError, match=r"the (producer|consumer) is running already"):
            await started(member)
        await member.stop()
        assert running_clients() == 0

    at_nobody(work)


@pytest.mark.parametrize("kind", MEMBERS)
def test_starting_a_member_of_a_client_that_does_not_run_raises(kind: str) -> None:
    async def work(servers: str) -> None:
        member = MEMBERS[kind](client=Client(ClientConfig(name_servers=(servers,))))
        with pytest.raises(NotStarted, match="client is not running"):
            await started(member)

    at_nobody(work)


@pytest.mark.parametrize("kind", ["lite pull", "pull", "scheduled pull"])
def test_a_block_whose_start_fails_leaves_nothing_running(kind: str) -> None:
    async def work(servers: str) -> None:
        other = LitePullConsumer(GROUP, {TOPIC: "another"}, name_servers=servers)
        await other.start()
        with pytest.raises(ValueError, match="subscribes differently"):
            async with MEMBERS[kind](name_servers=servers):
                pass
        assert running_clients() == 1
        await other.stop()

    at_nobody(work)


def test_using_a_push_consumer_that_does_not_run_raises() -> None:
    async def work(servers: str) -> None:
        consumer = PushConsumer(GROUP, {TOPIC: "*"}, name_servers=servers)
        consumer.pause()
        consumer.resume()
        for question in (consumer.waits, consumer.assignment):
            with pytest.raises(NotStarted):
                question()
        with pytest.raises(NotStarted):
            await consumer.offset_range(None)  # type: ignore[arg-type]  # not looked at
        with pytest.raises(NotStarted):
            await consumer.offset_at(None, 0)  # type: ignore[arg-type]

    at_nobody(work)


def running_in_background() -> int:
    """In a process that other tests use too: what they left may end in between, never begin."""

    async def count() -> int:
        return running_clients()

    return loop_of_process.get().run(count())


def test_a_second_blocking_start_is_refused_and_the_first_keeps_running() -> None:
    before = running_in_background()
    with HeldPort() as port:
        producer = blocking.Producer(GROUP, name_servers=f"127.0.0.1:{port.port}")
        producer.start()
        with pytest.raises(ValueError, match="running already"):
            producer.start()
        producer.stop()
        assert running_in_background() <= before
        producer.start()  # another one with the same name
        producer.stop()


def test_a_blocking_start_that_fails_leaves_nothing_running() -> None:
    before = running_in_background()
    with HeldPort() as port:
        servers = f"127.0.0.1:{port.port}"
        consumer = blocking.PushConsumer(GROUP, {TOPIC: "*"}, name_servers=servers)
        with pytest.raises(ValueError, match="must be a function"):
            consumer.start(None)  # type: ignore[call-overload]
        other = blocking.LitePullConsumer(GROUP, {TOPIC: "another"}, name_servers=servers)
        with other:
            running = running_in_background()
            with pytest.raises(ValueError, match="subscribes differently"):
                consumer.start(lambda messages: None)
            assert running_in_background() <= running
    assert running_in_background() <= before


def test_a_consumer_started_without_a_block_consumes(sparrowmq_cluster: Cluster) -> None:
    got: queue.Queue[bytes] = queue.Queue()

    def handle(messages: Sequence[MessageExt]) -> None:
        for message in messages:
            got.put(message.body)

    async def work() -> None:
        servers = sparrowmq_cluster.name_server
        producer = Producer("p", name_servers=servers)
        consumer = PushConsumer(
            GROUP,
            {"orders": "*"},
            name_servers=servers,
            from_where=ConsumeFromWhere.FIRST_OFFSET,
        )
        await producer.start()
        await producer.send(Message("orders", b"x"))
        await consumer.start(handle)
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(None, got.get, True, PATIENCE_S) == b"x"
        await consumer.stop()
        await producer.stop()

    asyncio.run(work())


# ---- another loop


@pytest.mark.parametrize("kind", MEMBERS)
def test_using_a_member_started_on_another_loop_raises(kind: str) -> None:
    async def work(servers: str) -> Any:
        member = MEMBERS[kind](name_servers=servers)
        await started(member)
        return member

    with HeldPort() as port:
        member = asyncio.run(work(f"127.0.0.1:{port.port}"))
        asked = consumer_of(member) if isinstance(member, ScheduledPull) else member
        with pytest.raises(NotStarted, match="another event loop"):
            asyncio.run(asked.queues(TOPIC))
