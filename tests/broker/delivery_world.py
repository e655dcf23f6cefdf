"""A broker without sockets and loops: requests are calls, and a test advances the time."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import msgspec
import pytest

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.delivery import delay_levels, timer_delivery, transaction_checks
from sparrowmq.broker.delivery import delivery as delivery_loops
from sparrowmq.broker.delivery.half_messages import records
from sparrowmq.broker.environment import Environment
from sparrowmq.broker.replication.replication import Replication, open_in_role
from sparrowmq.broker.server import open_broker, routes
from sparrowmq.broker.topics import plain_topic
from sparrowmq.disk.errors import DiskFull
from sparrowmq.disk.syncer import InlineSyncer
from sparrowmq.net.connection import Connection
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.peers import Peers
from sparrowmq.net.routes import Reply, Request
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.messages import RecallableSent
from sparrowmq.protocol.headers.send import MessageSent, SendBack, SendMessageV2
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import AUTO_CREATE_TOPIC
from sparrowmq.protocol.properties import format_properties
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.messages import Stored
from sparrowmq.testing.recording_disk import RecordingDisk
from sparrowmq.testing.sim_cluster import SMALL_STORE

T = TypeVar("T")

EPOCH_MS = 1_700_000_000_000
PORT = 10911
Sent = MessageSent | RecallableSent


class Peer:
    """The part of a connection that handlers use; it records what was sent to it."""

    def __init__(self, name: str = "client") -> None:
        self.name = self.peer = name
        self.is_open = True
        self.peer_bytes = bytes((127, 0, 0, 1, 0, 0, 0x30, 0x39))
        self.replies: list[Reply] = []
        self.calls: list[tuple[Any, bytes]] = []

    def write_reply(self, request: Request[Any], reply: Reply) -> None:
        self.replies.append(reply)

    def write_replies(self, answers: Iterable[tuple[Request[Any], Reply]]) -> None:
        self.replies += [reply for _, reply in answers]

    def send_oneway(self, header: RequestHeader, body: bytes = b"") -> None:
        self.calls.append((header, body))

    @property
    def connection(self) -> Connection:
        """Itself, for those who ask for the real thing."""
        return cast(Connection, self)


class DeliveryWorld:
    """One broker on a recording disk. `pass_time` delivers what becomes due, in order."""

    def __init__(self, *, store: StoreConfig | None = None, **settings: Any) -> None:
        self.now_ms = EPOCH_MS
        self._set_ms = 0
        self.disk = RecordingDisk()
        self.peer = Peer()
        self.config = BrokerConfig(
            data_dir=Path("/simulated"), store=store or SMALL_STORE, **settings
        )
        self._loop = asyncio.new_event_loop()
        self.broker: Broker
        self.starts = self.boots = 0
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to its end, saving tables meanwhile; nothing in here waits for time."""

        async def with_saves() -> T:
            running = asyncio.create_task(work)
            try:
                while not running.done():
                    await self.broker.saving.save()
                    await asyncio.sleep(0)
                await self.broker.saving.save()
            except BaseException:  # the disk has failed, or the power
                running.cancel()
                await asyncio.wait((running,))
                raise
            return await running

        return self._loop.run_until_complete(with_saves())

    # ---- life

    def start(self) -> None:
        """Open what the disk holds."""
        self.starts += 1
        env = Environment(
            disk=self.disk,
            clock=lambda: self.now_ms,
            monotonic=lambda: self.elapsed_ms,
            cpu=lambda: 0,
            boot=f"boot {self.boots}",
            rng=random.Random(self.starts),
            workers=InlineWorkers(),
            syncer=InlineSyncer(self.disk),
            pid=1000 + self.starts,
            log=logging.getLogger("sparrowmq.delivery"),
        )

        async def open_it() -> Broker:
            peers = cast(Peers, None)
            opened = await open_in_role(self.config, env, peers, PORT)
            tasks = cast(asyncio.TaskGroup, None)
            replication = Replication(self.config, env, opened, peers, tasks, PORT)
            return open_broker(self.config, env, peers, replication, PORT)

        self.broker = self._loop.run_until_complete(open_it())

    def kill(self) -> None:
        """Like kill -9, and start again."""
        self.disk = self.disk.killed()
        self.start()

    def lose_power(self, rng: random.Random) -> None:
        """Like a power cut, and start again."""
        self.disk = self.disk.crashed(rng)
        self.boots += 1
        self.start()

    def stop(self) -> None:
        """In order, as the server does it."""

        async def stop_it() -> None:
            await self.broker.durability.flush()
            await delivery_loops.close(self.broker)
            await self.broker.tables.offsets.save(
                self.broker.offsets, InlineWorkers(), self.broker.slices
            )
            self.broker.tables.offsets.close()
            self.broker.delivery.close()
            self.broker.store.close()

        self.run(stop_it())

    def flush(self) -> None:
        """Write and sync everything."""
        self.broker.store.tick(self.now_ms)
        self.run(self.broker.durability.flush())

    def save(self) -> None:
        """Sync, and save how far delivery has come."""
        self.flush()
        self.run(delivery_loops.save(self.broker))
        self.run(
            self.broker.tables.offsets.journal(
                self.broker.offsets, InlineWorkers(), self.broker.slices
            )
        )

    # ---- time

    @property
    def elapsed_ms(self) -> int:
        """What the clock would show if it had not been set."""
        return self.now_ms - self._set_ms

    def set_clock(self, by_ms: int) -> None:
        """Set the clock forward, or back; no time passes by that."""
        self.now_ms += by_ms
        self._set_ms += by_ms

    def deliver(self) -> int | None:
        """Deliver what is due now; returns when the next delivery is due."""

        async def all_rounds() -> int | None:
            due_ms = [await delay_levels.deliver_round(self.broker)]
            due_ms.append(await timer_delivery.deliver_round(self.broker))
            question_ms = await transaction_checks.check_round(self.broker)
            due_ms.append(None if question_ms is None else question_ms + self._set_ms)
            return min((one for one in due_ms if one is not None), default=None)

        return self.run(all_rounds())

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass, stopping whenever something is due."""
        until_ms = self.now_ms + round(seconds * 1000)
        while (due_ms := self.deliver()) is not None and due_ms <= until_ms:
            self.now_ms = max(due_ms, self.now_ms)
        self.now_ms = until_ms

    # ---- requests

    def call(
        self, header: RequestHeader, body: bytes = b"", *, peer: Peer | None = None, flag: int = 0
    ) -> Reply:
        """Answer a request; a refusal is a reply as well."""
        connection = (peer or self.peer).connection
        request: Request[Any] = Request(header, body, 1, flag, "JAVA", 500, False, connection)

        async def answer() -> Reply:
            try:
                handled = routes.handlers[type(header)](self.broker, request)
                if isinstance(handled, Awaitable):
                    handled = await handled
            except RequestRefused as refused:
                return Reply(code=refused.code, remark=refused.text)
            if handled is None:
                await self.broker.durability.flush()
                return cast(Peer, connection).replies.pop()
            return handled

        return self.run(answer())

    def send(
        self, topic: str, body: bytes = b"body", *, queue_id: int = 0, **properties: str
    ) -> Sent:
        """Send a message that must be taken."""
        return self.post(topic, body, properties, queue_id)

    def post(
        self, topic: str, body: bytes, properties: Mapping[str, str], queue_id: int = 0
    ) -> Sent:
        """The same with the properties in a table."""
        reply = self.call(self.send_header(topic, queue_id, properties), body)
        assert reply.code == ResponseCode.SUCCESS, reply.remark
        assert isinstance(reply.header, Sent)
        return reply.header

    def try_send(
        self, topic: str, body: bytes = b"body", *, queue_id: int = 0, **properties: str
    ) -> Reply:
        """Send a message; whatever the answer is."""
        return self.call(self.send_header(topic, queue_id, properties), body)

    def try_again(
        self, topic: str, body: bytes, times: int, limit: int | None = None, /, **properties: str
    ) -> Reply:
        """Send to a retry topic as consumers do."""
        header = self.send_header(topic, 0, properties)
        header = msgspec.structs.replace(header, reconsume_times=times, max_reconsume_times=limit)
        return self.call(header, body)

    def send_header(
        self, topic: str, queue_id: int, properties: Mapping[str, str]
    ) -> SendMessageV2:
        """As a producer of the group orders-svc writes it."""
        return SendMessageV2(
            producer_group="orders-svc",
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=0,
            born_timestamp=self.now_ms,
            flag=7,
            properties=format_properties(properties),
        )

    def give_back(self, message: MessageExt, group: str, *, level: int = 0, **more: Any) -> Reply:
        """A consumer could not consume a message."""
        header = SendBack(offset=message.log_offset, group=group, delay_level=level, **more)
        return self.call(header)

    def messages(self, topic: str, queue_id: int = 0, offset: int = 0) -> list[MessageExt]:
        """What lies in a queue."""
        return [
            MessageExt(record) for record in records(self.broker.store, topic, offset, queue_id)
        ]


def orders_world() -> DeliveryWorld:
    """A world with the topic orders, of four queues."""
    world = DeliveryWorld()
    world.broker.topics.put(plain_topic("orders", 4))
    return world


def bodies(world: DeliveryWorld, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
    """Of what lies in a queue."""
    return [message.body for message in world.messages(topic, queue_id)]


def comes_in(world: DeliveryWorld, delay_ms: int) -> None:
    """Check that the only message is delivered to orders after exactly this time."""
    world.now_ms += delay_ms - 1
    assert world.deliver() == world.now_ms + 1
    assert bodies(world) == []
    world.now_ms += 1
    assert world.deliver() is None
    assert bodies(world) == [b"body"]


@contextmanager
def no_space(world: DeliveryWorld) -> Iterator[None]:
    """Nothing can be appended to the log while the block runs."""

    def full(*_: Any) -> Stored:
        raise DiskFull("", 0, "no space")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.broker.store, "append", full)
        yield


def find_no_space(world: DeliveryWorld) -> None:
    """What is due finds the disk full; then there is space again."""
    with no_space(world), pytest.raises(DiskFull):
        world.deliver()
