"""The mixed load of a campaign: producers of every kind of message, members of every kind.

```
plain      singles, batches and one-way sends     handled by push, lite and broadcasting members
ordered    by sharding key                        by ordered and lite members
later      delayed by level and by time           by push and broadcasting members
trades     transactions with all three outcomes   by push and lite members
flaky      handlers fail, once or always          by push members, and readers of dead letters
fleeting   deleted and created again              by push, ordered and lite members
```
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol

from sparrowmq.client.client import Client
from sparrowmq.client.consuming.lite_pull_consumer import LitePullConsumer
from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.client.errors import ClientError
from sparrowmq.client.send_result import SendResult
from sparrowmq.client.sending.producer import Producer
from sparrowmq.client.sending.transactional_producer import (
    HalfMessage,
    TransactionalProducer,
    TransactionState,
)
from sparrowmq.net.errors import NetError
from sparrowmq.net.workers import Workers
from sparrowmq.protocol.heartbeat import ConsumeFromWhere, MessageModel
from sparrowmq.protocol.message import Message
from sparrowmq.protocol.message_ext import MessageExt
from tests.faults.campaign import Call, Kind, Sending, Story, identify
from tests.faults.checker import MessageId, State, body_of

PLAIN, ORDERED, LATER = "plain", "ordered", "later"
TRADES, FLAKY, FLEETING = "trades", "flaky", "fleeting"
TOPICS = PLAIN, ORDERED, LATER, TRADES, FLAKY, FLEETING
QUEUES = 4
PUSH, LITE, IN_ORDER, EVERYONE, UNDERTAKERS = "push", "lite", "in-order", "everyone", "undertakers"
SUBSCRIBED = {
    PUSH: (PLAIN, LATER, TRADES, FLAKY, FLEETING),
    LITE: (PLAIN, ORDERED, TRADES, FLEETING),
    IN_ORDER: (ORDERED, FLEETING),
    EVERYONE: (PLAIN, LATER),
    UNDERTAKERS: (f"%DLQ%{PUSH}",),
}
LEVELS_MS = (1000, 8000, 500, 1000, 2000)
"""Retries begin at the third."""
_RETRIES = 2
_LONGEST_DELAY_MS = 9000
_LONGEST_CALL_S = 0.1
_LONGEST_POLL_S = 0.01
"""A lite member gets what one pull brought, often a single message, and works on one poll at a
time: with longer ones it falls behind the load, and its backlog takes minutes to drain."""


class ClientWorld(Protocol):
    """What clients need to know of where they run."""

    story: Story
    threads: Workers | None
    """Where plain functions run; None for separate threads."""
    offsets_dir: Path

    @property
    def now_s(self) -> float:
        """Time that only ever passes."""
        ...

    def clock(self) -> int:
        """Milliseconds since 1970, which may be set."""
        ...

    def client_on(self, name: str) -> Client:
        """A client that was not started yet."""
        ...

    def spawn(self, name: str, life: Coroutine[Any, Any, None]) -> None:
        """Run something on a host of that name."""
        ...

    def rng(self, purpose: str) -> Random:
        """Chance that repeats itself."""
        ...


@contextlib.asynccontextmanager
async def _started(world: ClientWorld, name: str) -> AsyncIterator[Client]:
    client = world.client_on(name)
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


# ---- producers


class Load:
    """Sends messages of every kind until stopped."""

    def __init__(self, world: ClientWorld, pause_s: float) -> None:
        self._world = world
        self._story = world.story
        self._pause_s = pause_s
        self._stopping = asyncio.Event()
        self._numbers: dict[str, int] = {}
        self._in_flight: set[MessageId] = set()
        work = (self._plain, self._ordered, self._later, self._trade, self._flaky, self._fleeting)
        for send in work:
            name = f"producer{send.__name__}".replace("_", "-")
            world.spawn(name, self._live(name, send))

    def stop(self) -> None:
        """Send nothing more. Producers stay: the broker may ask how a transaction ended."""
        self._stopping.set()

    async def _live(self, name: str, send: Callable[[Producer, Random], Awaitable[object]]) -> None:
        rng = self._world.rng(name)
        async with _started(self._world, name) as client:
            producer = (
                TransactionalProducer(name, self, client=client, threads=self._world.threads)
                if send == self._trade
                else Producer(name, client=client)
            )
            async with producer:
                while not self._stopping.is_set():
                    with contextlib.suppress(ClientError, NetError):
                        await send(producer, rng)
                    await asyncio.sleep(rng.random() * 2 * self._pause_s)
                await asyncio.Event().wait()

    def _next(self, topic: str, kind: Kind, delay_s: float = 0.0) -> Sending:
        number = self._numbers[topic] = self._numbers.get(topic, 0) + 1
        message = MessageId(topic, number)
        world = self._world
        sending = Sending(message, topic, kind, world.now_s, world.clock(), delay_s)
        self._story.sendings[message] = sending
        return sending

    def _answered(self, result: SendResult, *sendings: Sending) -> None:
        for sending in sendings if result.is_ok else ():
            sending.state = State.OK
            sending.acknowledged_s = self._world.now_s

    async def _plain(self, producer: Producer, rng: Random) -> None:
        match rng.randrange(4):
            case 0:
                batch = [self._next(PLAIN, Kind.BATCH) for _ in range(rng.randint(2, 5))]
                messages = [Message(PLAIN, body_of(one.message)) for one in batch]
                for result in await producer.send_batch(messages):
                    self._answered(result, *batch)
            case 1:
                sending = self._next(PLAIN, Kind.ONE_WAY)
                await producer.send_oneway(Message(PLAIN, body_of(sending.message)))
            case _:
                sending = self._next(PLAIN, Kind.SINGLE)
                result = await producer.send(Message(PLAIN, body_of(sending.message)))
                self._answered(result, sending)

    async def _ordered(self, producer: Producer, rng: Random) -> None:
        sending = self._next(ORDERED, Kind.ORDERED)
        body, key = body_of(sending.message), f"key-{rng.randrange(6)}"
        self._answered(await producer.send(Message(ORDERED, body, sharding_key=key)), sending)

    async def _later(self, producer: Producer, rng: Random) -> None:
        if rng.random() < 0.5:
            level = rng.randint(1, 2)
            sending = self._next(LATER, Kind.LEVEL, LEVELS_MS[level - 1] / 1000)
            message = Message(LATER, body_of(sending.message), delay_level=level)
        else:
            sending = self._next(LATER, Kind.TIME, rng.randint(10, _LONGEST_DELAY_MS) / 1000)
            body = body_of(sending.message)
            message = Message(LATER, body, deliver_time_ms=sending.due_ms)
        self._answered(await producer.send(message), sending)

    async def _flaky(self, producer: Producer, rng: Random) -> None:
        kind = rng.choice((Kind.SINGLE, Kind.RETRIED, Kind.POISON))
        sending = self._next(FLAKY, kind)
        self._answered(await producer.send(Message(FLAKY, body_of(sending.message))), sending)

    async def _fleeting(self, producer: Producer, rng: Random) -> None:
        sending = self._next(FLEETING, Kind.SINGLE)
        self._answered(await producer.send(Message(FLEETING, body_of(sending.message))), sending)

    # ---- transactions: this is their listener as well

    async def _trade(self, producer: Producer, rng: Random) -> None:
        assert isinstance(producer, TransactionalProducer)
        sending = self._next(TRADES, rng.choice((Kind.COMMIT, Kind.ROLLBACK)))
        self._in_flight.add(sending.message)
        try:
            await producer.send_in_transaction(Message(TRADES, body_of(sending.message)))
        finally:
            self._in_flight.discard(sending.message)

    async def execute(self, half: HalfMessage) -> TransactionState:
        """The half message is stored; every fourth stays open until the broker asks."""
        message = identify(half.message.body)
        assert message is not None
        sending = self._story.sendings[message]
        sending.state, sending.acknowledged_s = State.OK, self._world.now_s
        return TransactionState.UNKNOWN if message.number % 4 == 0 else self._decided(sending)

    async def check(self, message: MessageExt) -> TransactionState:
        """What was decided; nothing, where the answer to the half message never came."""
        found = self._story.take(message.body, "in a question about a transaction")
        if found is None or found in self._in_flight:
            return TransactionState.UNKNOWN
        return self._decided(self._story.sendings[found])

    def _decided(self, sending: Sending) -> TransactionState:
        is_good = sending.kind is Kind.COMMIT and sending.state is State.OK
        return TransactionState.COMMIT if is_good else TransactionState.ROLLBACK


# ---- members


class HandlerFailed(Exception):
    """Asked for by the campaign."""


@dataclass
class Member:
    """A consumer on its own host, which survives the faults of servers."""

    world: ClientWorld
    name: str
    group: str

    def start(self) -> None:
        """Begin to consume, also again after a kill."""
        self.world.spawn(self.name, self._read() if self._polls else self._push())

    @property
    def judged_as(self) -> str:
        """Broadcasting members each have to see everything."""
        return f"{EVERYONE}/{self.name}" if self.group == EVERYONE else self.group

    @property
    def _polls(self) -> bool:
        return self.group in (LITE, UNDERTAKERS)

    async def _push(self) -> None:
        is_broadcasting = self.group == EVERYONE
        async with _started(self.world, self.name) as client:
            consumer = PushConsumer(
                self.group,
                dict.fromkeys(SUBSCRIBED[self.group], "*"),
                client=client,
                from_where=ConsumeFromWhere.FIRST_OFFSET,
                orderly=self.group == IN_ORDER,
                model=MessageModel.BROADCASTING if is_broadcasting else MessageModel.CLUSTERING,
                offsets_dir=self.world.offsets_dir if is_broadcasting else None,
                max_reconsume_times=-1 if self.group == IN_ORDER else _RETRIES,
                threads=self.world.threads,
            )
            async with consumer:
                await consumer.run(self._handle)

    async def _read(self) -> None:
        async with _started(self.world, self.name) as client:
            consumer = LitePullConsumer(
                self.group,
                dict.fromkeys(SUBSCRIBED[self.group], "*"),
                client=client,
                from_where=ConsumeFromWhere.FIRST_OFFSET,
            )
            async with consumer:
                while True:
                    await self._work(await consumer.poll(1.0))

    async def _handle(self, messages: Sequence[MessageExt]) -> None:
        calls = await self._work(messages)
        for call, message in zip(calls, messages, strict=True):
            if call is not None and not call.is_done:
                raise HandlerFailed(message.msg_id)

    async def _work(self, messages: Sequence[MessageExt]) -> list[Call | None]:
        rng = self.world.rng(f"{self.name} {len(self.world.story.calls)}")
        calls = [self._begin(message) for message in messages]
        if messages:
            longest_s = _LONGEST_POLL_S if self.group == LITE else _LONGEST_CALL_S
            await asyncio.sleep(rng.random() * longest_s)
        for call, message in zip(calls, messages, strict=True):
            if call is not None:
                is_done = not self._fails(call.message, message)
                self.world.story.end(call, self.world.now_s, is_done=is_done)
        return calls

    def _begin(self, message: MessageExt) -> Call | None:
        world, story = self.world, self.world.story
        found = story.take(message.body, f"for {self.name}")
        if found is None:
            return None
        call = Call(
            self.judged_as,
            self.name,
            message.topic,
            message.queue_id,
            found,
            world.now_s,
            world.clock(),
        )
        story.calls.append(call)
        return call

    def _fails(self, found: MessageId, message: MessageExt) -> bool:
        if self.group != PUSH:
            return False
        kind = self.world.story.sendings[found].kind
        return kind is Kind.POISON or (kind is Kind.RETRIED and message.reconsume_times == 0)


def make_members(world: ClientWorld, *, each: int = 2) -> dict[str, Member]:
    """So many of each group, not yet started; one reads the dead letters."""
    members: dict[str, Member] = {}
    for group in SUBSCRIBED:
        for number in range(1 if group == UNDERTAKERS else each):
            member = Member(world, f"{group}-{number + 1}", group)
            members[member.name] = member
            if group != UNDERTAKERS:
                world.story.groups[member.judged_as] = SUBSCRIBED[group]
    world.story.ordered[IN_ORDER] = (ORDERED,)
    world.story.dead_letter_topic[UNDERTAKERS] = PUSH
    return members
