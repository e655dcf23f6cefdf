"""The throughput and the latencies of honest clients of a broker.

Senders keep a few sends on their way at any time, so that the broker and not they set the pace.
Readers ask for what needs no disk (a message that is there, their progress), one after the other:
they are answered however slow a sync is. All of it runs in the caller's thread, while it runs.
"""

import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import NamedTuple

from tests.faults.abused_broker import GROUP, HEARTBEAT, QUERY_OFFSET, heartbeat, pull_fields
from tests.faults.raw_wire import PULL_MESSAGE, RawClient, request, take_frames
from tests.guard import frames
from tests.patience import PATIENCE_S

TOPIC, QUEUES = frames.TOPIC, 8
_WINDOW = 8
_GET_MAX_OFFSET = 30
_MAYBE = {10, 11, 12}
"""FLUSH_DISK_TIMEOUT and its like: stored, but not as promised."""
SUCCESS = frozenset({0})
REFUSALS = frozenset({2, 14})
"""SYSTEM_BUSY and SERVICE_NOT_AVAILABLE: not stored, try again."""
_TURN_S = 0.05


class Kind(Enum):
    """What a request is."""

    SEND = "send"
    READ = "read"


class Answered(NamedTuple):
    """One request of the load."""

    kind: Kind
    code: int
    at_s: float
    took_s: float


@dataclass
class Phase:
    """What was answered in some part of a run."""

    began_s: float
    ended_s: float = 0.0
    answers: list[Answered] = field(default_factory=list)
    counts: Counter[tuple[Kind, int]] = field(default_factory=Counter)
    """How many of a kind were answered with a code."""

    def note(self, answer: Answered) -> None:
        """Another one has come."""
        self.answers.append(answer)
        self.counts[answer.kind, answer.code] += 1

    @property
    def sent(self) -> int:
        """Sends that were taken."""
        return self.counts[Kind.SEND, 0]

    @property
    def busy(self) -> int:
        """Sends that the broker could not take, and said so."""
        return sum(self.counts[Kind.SEND, code] for code in REFUSALS)

    @property
    def read(self) -> int:
        """Reads that found what they asked for."""
        return self.counts[Kind.READ, 0]

    @property
    def per_s(self) -> float:
        """Sends that were taken in a second."""
        return self.sent / (self.ended_s - self.began_s)

    def p99_s(self, kind: Kind, codes: frozenset[int] = SUCCESS) -> float:
        """How long all but one in a hundred of these took at most; 0 where there are none."""
        took_s = [each.took_s for each in self.answers if each.kind is kind and each.code in codes]
        return sorted(took_s)[int(len(took_s) * 0.99)] if took_s else 0.0


class _Connection:
    """A peer's socket with requests on their way."""

    def __init__(self, port: int, kind: Kind, number: int) -> None:
        self.kind = kind
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._queue_id = number % QUEUES
        self._numbers = count(number << 20)
        self._buffer = bytearray()
        self._sent_s = 0.0
        self.waiting = 0

    def ask(self) -> None:
        """Write the next requests."""
        if self.kind is Kind.SEND:
            requests = [frames.send(next(self._numbers), self._queue_id) for _ in range(_WINDOW)]
        else:
            requests = [_read(next(self._numbers))]
        self.waiting = len(requests)
        self._sent_s = time.monotonic()
        self.socket.sendall(b"".join(requests))

    def take(self) -> list[Answered]:
        """Answers that have come. Raises OSError when the connection is lost."""
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionResetError("the broker closed an honest client's connection")
        self._buffer += data
        now_s = time.monotonic()
        heads = [head for head, _ in take_frames(self._buffer) if head.flag & 1]
        self.waiting -= len(heads)
        took_s = now_s - self._sent_s
        return [Answered(self.kind, head.code, now_s, took_s) for head in heads]


def _read(number: int) -> bytes:
    """A pull of the first message, or the progress of the group."""
    if number % 2:
        return request(PULL_MESSAGE, number, pull_fields(TOPIC, 0) | {"maxMsgNums": "1"})
    place = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
    return request(QUERY_OFFSET, number, place)


class HonestLoad:
    """Senders and readers; nothing moves outside of `run`, and nothing is lost by that."""

    def __init__(self, port: int, senders: int, readers: int, patience_s: float) -> None:
        self._port = port
        self._patience_s = patience_s
        with RawClient(port) as first:
            first.call(HEARTBEAT, {}, heartbeat("honest", [GROUP], TOPIC))
        kinds = [Kind.SEND] * senders + [Kind.READ] * readers
        self._connections = [_Connection(port, kind, at) for at, kind in enumerate(kinds)]
        self._selector = selectors.DefaultSelector()
        for connection in self._connections:
            self._selector.register(connection.socket, selectors.EVENT_READ, connection)
        self._codes: Counter[int] = Counter()

    def close(self) -> None:
        """Hang up."""
        self._selector.close()
        for connection in self._connections:
            connection.socket.close()

    def run(
        self, is_over: Callable[[Phase], bool], look: Callable[[], None] | None = None
    ) -> Phase:
        """Ask until it is over, which is tested several times a second; `look` is called as often.

        Raises OSError when a connection is lost, AssertionError when nothing is ever over.
        """
        phase = Phase(time.monotonic())
        end_s = phase.began_s + self._patience_s
        while not is_over(phase):
            assert time.monotonic() < end_s, f"an honest client waits for ever: {phase.counts}"
            if look is not None:
                look()
            turn_s = time.monotonic() + _TURN_S
            while (left_s := turn_s - time.monotonic()) > 0:
                for connection in self._connections:
                    if not connection.waiting:
                        connection.ask()
                self._take(phase, left_s)
        phase.ended_s = time.monotonic()
        return phase

    def finish(self) -> Phase:
        """Take the answers that are still to come."""
        phase = Phase(time.monotonic())
        end_s = phase.began_s + self._patience_s
        while any(connection.waiting for connection in self._connections):
            assert time.monotonic() < end_s, "some requests are never answered"
            self._take(phase, _TURN_S)
        phase.ended_s = time.monotonic()
        return phase

    def _take(self, phase: Phase, longest_s: float) -> None:
        for key, _ in self._selector.select(longest_s):
            connection: _Connection = key.data
            for answer in connection.take():
                phase.note(answer)
                if answer.kind is Kind.SEND:
                    self._codes[answer.code] += 1

    def judge(self) -> list[str]:
        """Compare what was answered with what is there; everything must have been answered."""
        problems = []
        taken = self._codes[0] + sum(self._codes[code] for code in _MAYBE)
        with RawClient(self._port) as client:
            stored = sum(_end_of_queue(client, queue_id) for queue_id in range(QUEUES))
        if stored != taken:
            problems.append(f"{stored} messages are stored, {taken} sends were taken")
        unexpected = set(self._codes) - SUCCESS - REFUSALS - _MAYBE
        if unexpected:
            problems.append(f"sends were answered {sorted(unexpected)}")
        return problems


def _end_of_queue(client: RawClient, queue_id: int) -> int:
    head, _ = client.call(_GET_MAX_OFFSET, {"topic": TOPIC, "queueId": str(queue_id)})
    return int(head.extFields["offset"])
