"""Scorecard row 1: many senders, and a broker that is killed again and again.

Senders keep several requests in flight on their connections. The kill comes at a random moment, or
when an answer shows that the log has just moved to another file.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.faults.broker_process import BrokerProcess, StartFailed
from tests.faults.checker import Ledger, MessageId, ReadBack, Verdict, body_of, properties_of
from tests.faults.raw_wire import (
    SEND_MESSAGE_V2,
    AnswerHead,
    RawClient,
    request,
    send_fields,
    take_frames,
)

TOPIC, QUEUES = "faults", 4
LOG_FILE_BYTES = 1024 * 1024
_WINDOW = 8
_SEND_OK = 0
_MAYBE = {10, 11, 12}
"""FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT: stored, but not as promised."""


@dataclass
class KillResult:
    """What a series of kills came to."""

    seed: int
    flush: str
    kills: int = 0
    slowest_start_s: float = 0.0
    slowest_read_s: float = 0.0
    """From a kill of the master to a message that a client reads from its slave."""
    compared_progress: int = 0
    """How often a group's progress in a queue after a kill was compared with that before it."""
    seconds_to_stop: float = 0.0
    """From the first failed sync to the end of the process, where that was the question."""
    verdict: Verdict = field(default_factory=Verdict)
    problems: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.verdict) and not self.problems

    def __str__(self) -> str:
        problems = "; ".join(self.problems) or "every start succeeded"
        return (
            f"seed {self.seed}, {self.flush} flush, {self.kills} kills: {self.verdict}; {problems}"
        )


class Sender(asyncio.Protocol):
    """One connection with a few requests in flight."""

    def __init__(self, name: str, first: int, ledger: Ledger, on_stored: Callable[[int], None]):
        self.name = name
        self.number = first
        self._ledger = ledger
        self._on_stored = on_stored
        self._in_flight: dict[int, MessageId] = {}
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self.lost = asyncio.Event()
        """The connection has ended."""

    def itself(self) -> "Sender":
        """For create_connection, which wants a function that makes a protocol."""
        return self

    async def abort(self) -> None:
        """Drop the connection; answers that have not come are unknown."""
        if self._transport is not None:
            self._transport.abort()
            await self.lost.wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send(_WINDOW)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        answered = 0
        for head, _ in take_frames(self._buffer):
            message = self._in_flight.pop(head.opaque, None)
            if message is None:
                continue
            answered += 1
            if head.code == _SEND_OK:
                self._ledger.ok(message)
                self._on_stored(_log_offset(head))
            elif head.code not in _MAYBE and "is unknown" not in (head.remark or ""):
                self._ledger.fail(message)
        self._send(answered)

    def _send(self, count: int) -> None:
        frames = []
        queue_id = sum(self.name.encode()) % QUEUES
        for _ in range(count):
            message = MessageId(self.name, self.number)
            self.number += 1
            self._ledger.attempt(message)
            self._in_flight[message.number] = message
            fields = send_fields(TOPIC, queue_id, properties_of(message))
            frames.append(request(SEND_MESSAGE_V2, message.number, fields, body_of(message)))
        assert self._transport is not None
        self._transport.write(b"".join(frames))


def _log_offset(head: AnswerHead) -> int:
    """The last 8 bytes of the offset id."""
    return int((head.extFields or {}).get("msgId", "0")[-16:], 16)


class _Round:
    """One life of the broker: how many answers it gives before it dies."""

    def __init__(self, rng: Random, least: int) -> None:
        self._left = rng.randint(least, 2 * least)
        self._at_roll = rng.random() < 0.4
        self._file = -1
        self.over = asyncio.Event()

    def stored(self, log_offset: int) -> None:
        self._left -= 1
        file, self._file = self._file, log_offset // LOG_FILE_BYTES
        has_rolled = 0 <= file != self._file
        # Waiting for a roll has an end, too.
        if self._left <= 0 and (has_rolled or not self._at_roll or self._left < -8000):
            self.over.set()


def kill_broker(
    seed: int,
    flush: str,
    *,
    kills: int,
    senders: int = 16,
    acknowledged_each: int = 1500,
    module: str = "sparrowmq",
    keep_in: Path | None = None,
) -> KillResult:
    """Kill a broker under load `kills` times, then read everything back."""
    result = KillResult(seed, flush)
    ledger = Ledger()
    rng = Random(seed)
    numbers = [0] * senders
    root = Path(tempfile.mkdtemp(prefix="sparrowmq-kills-"))
    data = root / "data"
    options = ("--flush", flush, "--store-log-file-size", str(LOG_FILE_BYTES))
    try:
        for _ in range(kills):
            broker = BrokerProcess(data, *options, module=module)
            result.slowest_start_s = max(result.slowest_start_s, broker.ready_s)
            try:
                asyncio.run(one_life(broker, rng, numbers, ledger, acknowledged_each))
            finally:
                broker.kill()
            result.kills += 1
        broker = BrokerProcess(data, *options, module=module)
        try:
            result.verdict = ledger.check(read_back(broker.port))
        finally:
            broker.stop()
    except (StartFailed, OSError, TimeoutError) as error:
        result.problems.append(repr(error))
    if not result and keep_in is not None:
        shutil.copytree(root, keep_in, dirs_exist_ok=True)
        result.problems.append(f"kept in {keep_in}")
    shutil.rmtree(root)
    return result


def read_back(port: int) -> list[ReadBack]:
    """Everything in the topic."""
    with RawClient(port) as client:
        return [message for queue in range(QUEUES) for message in client.read_queue(TOPIC, queue)]


async def one_life(
    broker: BrokerProcess,
    rng: Random,
    numbers: list[int],
    ledger: Ledger,
    least: int,
    *,
    kills: bool = True,
) -> None:
    """Load a broker until it has answered so often, and kill it."""
    life = _Round(rng, least)
    loop = asyncio.get_running_loop()
    connected: list[Sender] = []
    for number, first in enumerate(numbers):
        sender = Sender(f"s{number}", first, ledger, life.stored)
        await loop.create_connection(sender.itself, "127.0.0.1", broker.port)
        connected.append(sender)
    async with asyncio.timeout(120):
        await life.over.wait()
    # No orderly close: the kill hits requests in flight in both directions.
    if kills:
        broker.process.kill()
    for sender in connected:
        await sender.abort()
    numbers[:] = [sender.number for sender in connected]


def acknowledged(results: list[KillResult]) -> int:
    """How many sends were answered SEND_OK."""
    return sum(result.verdict.ok for result in results)
