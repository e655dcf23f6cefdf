"""Many pending timers in a separate broker: filled over a socket, killed, started again."""

import random
import socket
from collections.abc import Iterator
from pathlib import Path

from bench import delivery_frames
from bench.contest import say
from bench.figures import Figure, at_most
from bench.machine import anonymous_mb
from sparrowmq.clock import system_clock
from sparrowmq.protocol.frame import FrameDecoder
from sparrowmq.protocol.header import decode_plain
from tests.faults.broker_process import BrokerProcess

_AT_ONCE = 512
_FIRST_MS = 30 * 60 * 1000
"""Nothing becomes due while the store is filled."""
_LAST_MS = 3 * 24 * 3600 * 1000 - 60_000
_SAID = 1_000_000


def pending(folder: Path, count: int) -> list[Figure]:
    """Memory and the time of a start after kill -9, with so many messages waiting over three
    days."""
    folder.mkdir(parents=True)
    # Several frames a read callback keep it busy for long; that is not what is measured here.
    broker = BrokerProcess(folder / "data", "--busy-lag", "60s")
    try:
        fill(broker, count)
        filled_mb = anonymous_mb([broker.process.pid])
    finally:
        broker.kill()
    again = BrokerProcess(folder / "data")
    try:
        start_s = cpu_s(again.process.pid)
        with Sender(again) as sender:
            sender.send([delivery_frames.timed_send(0, system_clock() + _LAST_MS)])
        started_mb = anonymous_mb([again.process.pid])
    finally:
        again.kill()
    work = f"{count:,} pending over 3 days"
    return [
        Figure(work, "anonymous memory after they were sent", "MB", filled_mb, None, at_most(250)),
        Figure(work, "anonymous memory after kill -9", "MB", started_mb, None, at_most(250)),
        Figure(work, "CPU until ready after kill -9", "s", start_s),
        Figure(work, "ready after kill -9", "s", again.ready_s, None, at_most(5)),
    ]


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far: a busy machine changes them less than the clock's."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def fill(broker: BrokerProcess, count: int, *, seed: int = 1) -> None:
    """Send `count` messages with times in the next three days."""
    rng = random.Random(seed)
    with Sender(broker) as sender:
        for start in range(0, count, _AT_ONCE):
            now_ms = system_clock()
            sender.send(
                [
                    delivery_frames.timed_send(number, now_ms + rng.randrange(_FIRST_MS, _LAST_MS))
                    for number in range(start, min(start + _AT_ONCE, count))
                ]
            )
            if start // _SAID != (start + _AT_ONCE) // _SAID:
                say(f"{start + _AT_ONCE:,} pending")


class Sender:
    """A connection over which many requests are answered together."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._socket = socket.create_connection(("127.0.0.1", broker.port), 60)
        self._decoder = FrameDecoder()

    def __enter__(self) -> "Sender":
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def send(self, requests: list[bytes]) -> None:
        """Returns when all are answered. Raises RuntimeError when one is refused."""
        self._socket.sendall(b"".join(requests))
        left = len(requests)
        while left:
            for frame in self._frames():
                answer = decode_plain(frame[0], frame[1])
                if answer.code:
                    raise RuntimeError(f"a message was refused: {answer.code} {answer.remark}")
                left -= 1

    def _frames(self) -> Iterator[tuple[bool, bytes]]:
        data = self._socket.recv(1 << 20)
        if not data:
            raise RuntimeError("the broker closed the connection")
        for is_binary, header, _ in self._decoder.feed(data):
            yield is_binary, bytes(header)
