"""Requests to a broker with a backlog: sends, batches and pulls without a pause, and key queries.

A broker is never idle while requests are measured: two connections take turns, and while the
answers of one are read, the requests of the other are there already.
"""

import random
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import cycle
from types import TracebackType

from bench.contest import say
from sparrowmq.protocol.frame import FrameDecoder
from sparrowmq.protocol.header import decode_plain
from tests.faults.raw_wire import PULL_MESSAGE, RawClient, request
from tests.guard import frames

QUEUES = 8
PULLED = frames.BATCHED
"""Messages of a batch, and of a pull."""
_CONNECTIONS = 2
_AT_ONCE = 64
"""Requests that are written together: as many as a broker serves in one turn of its loop."""
_LONGEST_S = 60.0
_QUERY_MESSAGE = 12
_SAID = 2_000_000

Chunk = tuple[bytes, int]
"""Encoded requests, and their number."""


class Pipeline:
    """Connections with requests on their way at any time."""

    def __init__(self, port: int) -> None:
        self._wires = [_Wire(port) for _ in range(_CONNECTIONS)]

    def __enter__(self) -> "Pipeline":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for wire in self._wires:
            wire.close()

    def ask(self, chunks: Iterable[Chunk]) -> int:
        """Returns how many bytes the bodies of all answers had, when the last has come.

        Raises RuntimeError for a refusal.
        """
        received = 0
        waiting: deque[tuple[_Wire, int]] = deque()
        for wire, (data, count) in zip(cycle(self._wires), chunks, strict=False):
            if len(waiting) == len(self._wires):
                received += _finish(waiting)
            wire.send(data)
            waiting.append((wire, count))
        while waiting:
            received += _finish(waiting)
        return received


def _finish(waiting: "deque[tuple[_Wire, int]]") -> int:
    wire, count = waiting.popleft()
    return wire.take(count)


class _Wire:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), _LONGEST_S)
        self._decoder = FrameDecoder()

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def take(self, count: int) -> int:
        """Bytes of the bodies of a number of answers."""
        received = 0
        while count:
            data = self._socket.recv(1 << 20)
            if not data:
                raise RuntimeError("the broker closed the connection")
            for is_binary, header, body in self._decoder.feed(data):
                answer = decode_plain(is_binary, header)
                if answer.code:
                    raise RuntimeError(f"refused: {answer.code} {answer.remark}")
                received += len(body)
                count -= 1
        return received


def chunks_of(requests: list[bytes]) -> list[Chunk]:
    """All of them, ready to be written."""
    groups = (requests[at : at + _AT_ONCE] for at in range(0, len(requests), _AT_ONCE))
    return [(b"".join(group), len(group)) for group in groups]


def fill(port: int, batches: int) -> float:
    """Send `batches` batches of 32 over the wire as a producer does; returns messages a second."""
    began_s = time.monotonic()
    with Pipeline(port) as pipeline:
        pipeline.ask(_batches(batches))
    return batches * PULLED / (time.monotonic() - began_s)


def _batches(count: int) -> Iterator[Chunk]:
    each = _AT_ONCE // 8
    for first in range(0, count, each):
        numbers = range(first, min(first + each, count))
        yield b"".join(frames.batch(number, number % QUEUES) for number in numbers), len(numbers)
        stored = numbers[-1] * PULLED
        if stored // _SAID != (stored + each * PULLED) // _SAID:
            say(f"{stored + each * PULLED:,} messages")


def pulls(first: int, count: int, *, past: int = 0) -> list[bytes]:
    """Pulls of 32 for what the batches from number `first` on stored, or what lies `past` messages
    after it in each queue: the queues in turn, as consumers that are equally far read them."""
    return [
        _pull(number, number // QUEUES * PULLED + past, number % QUEUES)
        for number in range(first, first + count)
    ]


def _pull(number: int, offset: int, queue_id: int) -> bytes:
    fields = {
        "consumerGroup": "bench",
        "topic": frames.TOPIC,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": str(PULLED),
        "sysFlag": "4",  # the subscription is part of the request
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subVersion": "0",
        "subscription": "*",
        "expressionType": "TAG",
        "maxMsgBytes": str(256 * 1024),
    }
    return request(PULL_MESSAGE, number, fields)


def query_ms(port: int, stored: int, count: int, rng: random.Random) -> list[float]:
    """How long each of so many queries takes, for unique ids of messages that batches stored."""
    took_ms = []
    with RawClient(port) as client:
        for _ in range(count):
            key = (frames.UNIQUE_ID % rng.randrange(stored)).decode()
            began_s = time.perf_counter()
            head, body = client.call(_QUERY_MESSAGE, _query(key))
            took_ms.append((time.perf_counter() - began_s) * 1000)
            if head.code or key.encode() not in body:
                raise RuntimeError(f"{key} was not found: {head.code} {head.remark}")
    return took_ms


def _query(key: str) -> dict[str, str]:
    span = {"beginTimestamp": "0", "endTimestamp": str(2**62)}
    unique = {"_UNIQUE_KEY_QUERY": "true"}
    return {"topic": frames.TOPIC, "key": key, "maxNum": "32", **span, **unique}
