"""One life of a broker: clients that use everything it promises until it is killed."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from random import Random

from sparrowmq.client.broker_calls import (
    Position,
    commit_offset,
    committed_offset,
    max_offset,
)
from sparrowmq.client.client import Client, core_of
from sparrowmq.client.config import ClientConfig
from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.client.errors import ClientError
from sparrowmq.client.sending.producer import Producer
from sparrowmq.client.sending.transactional_producer import (
    HalfMessage,
    TransactionalProducer,
    TransactionState,
)
from sparrowmq.clock import system_clock
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.delay import RETRY_DELAYS_MS
from sparrowmq.protocol.heartbeat import ConsumeFromWhere
from sparrowmq.protocol.message import Message, MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from tests.faults.delivery_kills import Commits, Delivery, Promises

PLAIN, LATER, TRADES = "plain", "later", "trades"
TOPICS = PLAIN, LATER, TRADES
QUEUES = 2
GROUP, COMMITTERS = "consumers", "committers"
_PAUSE_S = 0.01


class Bookings:
    """The application's side of transactions: what was decided is never forgotten."""

    def __init__(self, promises: Promises) -> None:
        self._promises = promises

    async def execute(self, half: HalfMessage) -> TransactionState:
        """Decide; every fifth stays open until the broker asks."""
        body = half.message.body
        number = int(body.split()[-1])
        is_good = number % 2 == 0
        (self._promises.committed if is_good else self._promises.rolled_back).add(body)
        return TransactionState.UNKNOWN if number % 5 == 0 else self._decided(body)

    async def check(self, message: MessageExt) -> TransactionState:
        """What was decided; a half message whose sender heard nothing decided nothing."""
        return self._decided(message.body)

    def _decided(self, body: bytes) -> TransactionState:
        if body in self._promises.committed:
            return TransactionState.COMMIT
        return TransactionState.ROLLBACK


class Life:
    """The clients of one life, which start over with the state that the broker kept."""

    def __init__(self, name_server: str, promises: Promises, rng: Random, number: int) -> None:
        self._promises = promises
        self._rng = rng
        self._number = number
        self._counts = dict.fromkeys(TOPICS, 0)
        self.commits = Commits()
        config = ClientConfig(name_servers=(name_server,), heartbeat_s=1.0)
        self.client = Client(config)
        self._producer = Producer("plain", client=self.client, retries=0)
        self._bank = TransactionalProducer("bank", Bookings(promises), client=self.client)
        self._consumer = PushConsumer(
            GROUP,
            dict.fromkeys(TOPICS, "*"),
            client=self.client,
            from_where=ConsumeFromWhere.FIRST_OFFSET,
            batch=32,
            stop_within_s=1.0,
        )

    async def begin(self) -> None:
        """Start to consume."""
        await self.client.start()
        await self._producer.start()
        await self._bank.start()
        await self._consumer.start(self._handle)

    async def end(self) -> None:
        """The broker is dead, so clients cannot unregister."""
        await self._consumer.stop()
        await self._bank.stop()
        await self._producer.stop()
        await self.client.stop()

    async def use_everything(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Start a task that runs until it is cancelled."""
        work = [self._send_plain(), self._send_later(), self._trade(), self._commit()]
        work += [self._watch(queue_id) for queue_id in range(QUEUES)]
        return [tasks.create_task(one) for one in work]

    async def _handle(self, messages: Sequence[MessageExt]) -> None:
        for message in messages:
            if message.topic in TOPICS:
                self._promises.deliveries.append(
                    Delivery(
                        message.topic,
                        message.queue_id,
                        message.queue_offset,
                        message.body,
                        time.monotonic(),
                        system_clock(),
                        self._number,
                    )
                )

    def _body(self, topic: str) -> bytes:
        self._counts[topic] += 1
        return f"{topic} {self._number} {self._counts[topic]}".encode()

    async def _send_plain(self) -> None:
        while True:
            for queue_id in range(QUEUES):
                body = self._body(PLAIN)
                queue = MessageQueue(PLAIN, "broker-a", queue_id)
                with contextlib.suppress(ClientError):
                    sent = await self._producer.send(Message(PLAIN, body), queue=queue)
                    if sent.is_ok:
                        self._promises.plain.add(body)
            await asyncio.sleep(_PAUSE_S)

    async def _send_later(self) -> None:
        while True:
            body = self._body(LATER)
            now_ms = system_clock()
            if self._rng.random() < 0.5:
                level = self._rng.randint(1, 2)
                message = Message(LATER, body, delay_level=level)
                due_ms = now_ms + RETRY_DELAYS_MS[level - 1]
            else:
                due_ms = now_ms + self._rng.randint(10, 6000)
                message = Message(LATER, body, deliver_time_ms=due_ms)
            with contextlib.suppress(ClientError):
                if (await self._producer.send(message)).is_ok:
                    self._promises.due_ms[body] = due_ms
            await asyncio.sleep(3 * _PAUSE_S)

    async def _trade(self) -> None:
        while True:
            with contextlib.suppress(ClientError):
                await self._bank.send_in_transaction(Message(TRADES, self._body(TRADES)))
            await asyncio.sleep(3 * _PAUSE_S)

    async def _commit(self) -> None:
        """A group that commits explicitly, and knows when it was answered."""
        queue = MessageQueue(PLAIN, "broker-a", 0)
        first = self._promises.commits[-1].attempted if self._promises.commits else 0
        self.commits.attempted = first
        while True:
            # Only as far as there are messages: progress beyond the end is taken back.
            at = min(self.commits.attempted + 1, first + self._counts[PLAIN] // (2 * QUEUES))
            self.commits.attempted = max(at, self.commits.attempted)
            with contextlib.suppress(ClientError, NetError):
                epoch = (await max_offset(core_of(self.client), queue)).epoch
                position = Position(self.commits.attempted, epoch)
                await commit_offset(core_of(self.client), COMMITTERS, queue, position)
                self.commits.answered.append(self.commits.attempted)
            await asyncio.sleep(_PAUSE_S)

    async def _watch(self, queue_id: int) -> None:
        """Ask the broker how far the consumers of a plain queue are."""
        queue = MessageQueue(PLAIN, "broker-a", queue_id)
        while True:
            with contextlib.suppress(ClientError, NetError):
                stored = await committed_offset(core_of(self.client), GROUP, queue)
                if stored is not None:
                    self._promises.known[self._number, queue_id] = stored.offset
            await asyncio.sleep(5 * _PAUSE_S)
