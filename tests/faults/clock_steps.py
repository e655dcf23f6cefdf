"""Row 17 with a real broker whose clock is set while delays, timers and transactions wait.

```
levels, delays   never before their time has passed, and all of them come
times            not before the broker's clock showed them
transactions     asked about, and committed by the answer
members          keep their connections: none was silent, in spite of the clock
```
"""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from sparrowmq.client.broker_calls import call
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
from sparrowmq.protocol.delay import RETRY_DELAYS_MS
from sparrowmq.protocol.headers.topics import CreateTopic
from sparrowmq.protocol.heartbeat import ConsumeFromWhere
from sparrowmq.protocol.message import Message
from sparrowmq.protocol.message_ext import MessageExt
from tests.faults.delivery_kills_processes import Kills
from tests.faults.set_clock_broker import SetClock
from tests.patience import PATIENCE_S

STEPS_MS = (-7_200_000, -130_000, -2_500, -30, 30, 2_500, 130_000, 7_200_000)
_TOPIC = "waiting"
_ROUNDING_S = 0.002
"""Clocks are read in whole milliseconds."""
_TIMER_MS = 2_000
_PAUSE_S = 0.6


@dataclass
class Waiting:
    """A message that was acknowledged: since when it waits, how long, or until what time."""

    sent_s: float
    delay_s: float = 0.0
    asked_ms: int = 0


@dataclass
class Steps:
    """What was promised, and what was seen of it."""

    steps: int = 0
    kills: int = 0
    waiting: dict[bytes, Waiting] = field(default_factory=dict)
    came: dict[bytes, list[tuple[float, int]]] = field(default_factory=dict)
    """Monotonic time of each arrival, and what the broker's clock showed when it was stored."""
    silenced: int = 0

    def problems(self) -> list[str]:
        """What should not have happened."""
        found = [f"lost: {body.decode()}" for body in self.waiting.keys() - self.came.keys()]
        for body, wait in self.waiting.items():
            for came_s, stored_ms in self.came.get(body, [])[:1]:
                if came_s - wait.sent_s < wait.delay_s - _ROUNDING_S:
                    found.append(f"early by time that passed: {body.decode()}")
                if stored_ms < wait.asked_ms:
                    found.append(f"early by the clock: {body.decode()}")
        if self.silenced:
            found.append(f"{self.silenced} members were taken for silent")
        return sorted(found)

    @property
    def late_s(self) -> float:
        """The latest of what waits for a length of time, also because of kills."""
        waited = [
            times[0][0] - self.waiting[body].sent_s - self.waiting[body].delay_s
            for body, times in self.came.items()
            if body in self.waiting and body.startswith(b"level")
        ]
        return max(waited, default=0.0)

    def __str__(self) -> str:
        repeated = sum(len(times) > 1 for times in self.came.values())
        return (
            f"{self.steps} steps, {self.kills} kills, {len(self.waiting)} messages,"
            f" {repeated} seen again, levels late by {self.late_s:.1f} s at most"
        )


class _Undecided:
    """Decides when it is asked."""

    async def execute(self, half: HalfMessage) -> TransactionState:
        return TransactionState.UNKNOWN

    async def check(self, message: MessageExt) -> TransactionState:
        return TransactionState.COMMIT


class _Run:
    def __init__(self, kills: Kills, clock: SetClock, rng: Random) -> None:
        self._kills, self._clock, self._rng = kills, clock, rng
        self.seen = Steps()
        config = ClientConfig(name_servers=(kills.name_server.address,), heartbeat_s=1.0)
        self.client = Client(config)
        self._producer = Producer("plain", client=self.client, retries=0)
        self._bank = TransactionalProducer("bank", _Undecided(), client=self.client)
        self._consumer = PushConsumer(
            "consumers",
            {_TOPIC: "*"},
            client=self.client,
            from_where=ConsumeFromWhere.FIRST_OFFSET,
            stop_within_s=1.0,
        )
        self._arrived = asyncio.Event()

    async def begin(self) -> None:
        await self.client.start()
        create = CreateTopic(topic=_TOPIC, read_queue_nums=1, write_queue_nums=1, perm=6)
        await call(core_of(self.client), self._kills.address, create)
        await self._producer.start()
        await self._bank.start()
        await self._consumer.start(self._handle)

    async def end(self) -> None:
        await self._consumer.stop()
        await self._bank.stop()
        await self._producer.stop()
        await self.client.stop()

    async def _handle(self, messages: Sequence[MessageExt]) -> None:
        for message in messages:
            moment = time.monotonic(), message.store_timestamp
            self.seen.came.setdefault(message.body, []).append(moment)
        self._arrived.set()

    async def send_some(self) -> None:
        number = len(self.seen.waiting)
        level = self._rng.randint(1, 2)
        delay_s = RETRY_DELAYS_MS[level - 1] / 1000
        asked_ms = self._clock() + _TIMER_MS
        await self._send(b"level %d" % number, Waiting(self._now(), delay_s), delay_level=level)
        wait = Waiting(self._now(), _TIMER_MS / 1000)
        await self._send(b"delay %d" % number, wait, delay_ms=_TIMER_MS)
        wait = Waiting(self._now(), 0, asked_ms)
        await self._send(b"time %d" % number, wait, deliver_time_ms=asked_ms)
        body = b"transaction %d" % number
        wait = Waiting(self._now())
        with_half = await self._bank.send_in_transaction(Message(_TOPIC, body))
        if with_half.is_ok:
            self.seen.waiting[body] = wait

    async def _send(self, body: bytes, wait: Waiting, **when: int) -> None:
        if (await self._producer.send(Message(_TOPIC, body, **when))).is_ok:  # type: ignore[arg-type]
            self.seen.waiting[body] = wait

    def _now(self) -> float:
        return time.monotonic()

    async def step(self) -> None:
        for _ in range(2):
            try:
                await self.send_some()
            except ClientError:
                continue  # the broker was killed, and is not known to be back
        await asyncio.sleep(self._rng.random() * _PAUSE_S)
        self._clock.set(self._rng.choice(STEPS_MS))
        self.seen.steps += 1
        if self._rng.random() < 0.2:
            self._kills.kill()
            self._kills.start()
            self.seen.kills += 1

    async def drain(self) -> None:
        """For times that are hours away now."""
        self._clock.set(7_200_000 * (self.seen.steps + 1))
        async with asyncio.timeout(PATIENCE_S):
            while self.seen.waiting.keys() - self.seen.came.keys():
                self._arrived.clear()
                await self._arrived.wait()


async def _run(seed: int, steps: int, root: Path, module: str) -> Steps:
    kills = Kills(root, module)
    try:
        kills.start()
        run = _Run(kills, SetClock(root), Random(seed))
        await run.begin()
        for _ in range(steps):
            await run.step()
        with suppress(TimeoutError):  # then the check says what is missing
            await run.drain()
        await run.end()
        log = (root / "data.log").read_text(errors="replace")
        run.seen.silenced = log.count("no heartbeat in time") + log.count("no keep-alive for")
        return run.seen
    finally:
        kills.close()


def set_clock(seed: int, steps: int, module: str = "tests.faults.set_clock_broker") -> Steps:
    """Set the clock of a broker so many times, and kill it now and then."""
    with tempfile.TemporaryDirectory(prefix="sparrowmq-clock-") as directory:
        SetClock(Path(directory))
        return asyncio.run(_run(seed, steps, Path(directory), module))
