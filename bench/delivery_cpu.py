"""CPU time of a whole broker for delayed messages and transactions, compared with plain sends.

Several connections, each with one request under way, as synchronous producers have it.
"""

import socket
from itertools import count
from pathlib import Path

from bench import delivery_frames
from bench.contest import say
from bench.figures import Figure, at_most
from bench.machine import threads_cpu_s
from sparrowmq.clock import system_clock
from sparrowmq.protocol.frame import FrameDecoder
from sparrowmq.protocol.header import PlainHeader, decode_plain
from sparrowmq.protocol.ids import OffsetId
from tests.faults.broker_process import BrokerProcess
from tests.guard import frames

_CONNECTIONS = 16
_REQUESTS = 4_000
_ROUNDS = 12
_QUEUES = 8
_HOUR_MS = 3_600_000
Rounds = dict[str, list[float]]


def ratios_of_a_broker(folder: Path) -> list[Figure]:
    """Sockets, loop and syncing included. The kinds take turns; the least of each counts."""
    folder.mkdir(parents=True)
    say("CPU of a broker for plain, delayed and transactional sends")
    took: Rounds = {kind: [] for kind in ("plain", "timed", "delayed", "half", "end")}
    broker = BrokerProcess(folder / "data", "--busy-lag", "60s")
    try:
        clients = Clients(broker)
        numbers = count()
        for _ in range(_ROUNDS):
            _round(clients, numbers, took)
        clients.close()
    finally:
        broker.kill()
    plain, timed, delayed, half, end = (min(took[kind]) for kind in took)
    work = "broker CPU, sockets included"
    return [
        Figure(work, "a plain send", "µs", plain),
        Figure(work, "a send of a delay level ÷ a plain one", "", delayed / plain),
        Figure(work, "a timed send ÷ a plain one", "", timed / plain, None, at_most(1.5)),
        Figure(work, "a transaction ÷ a plain send", "", (half + end) / plain, None, at_most(4)),
    ]


class Clients:
    """Connections that each wait for their answer before they ask again."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._pid = broker.process.pid
        address = ("127.0.0.1", broker.port)
        self._sockets = [socket.create_connection(address, 60) for _ in range(_CONNECTIONS)]
        self._decoders = [FrameDecoder() for _ in self._sockets]

    def close(self) -> None:
        """Hang up."""
        for one in self._sockets:
            one.close()

    def ask(self, requests: list[bytes]) -> tuple[float, list[PlainHeader]]:
        """Microseconds of CPU a request, and the answers. Raises RuntimeError for a refusal."""
        before_s = threads_cpu_s(self._pid)
        answers: list[PlainHeader] = []
        for start in range(0, len(requests), _CONNECTIONS):
            for one, request in zip(self._sockets, requests[start:], strict=False):
                one.sendall(request)
            answers += [self._answer(number) for number in range(_CONNECTIONS)]
        took_s = threads_cpu_s(self._pid) - before_s
        for answer in answers:
            if answer.code:
                raise RuntimeError(f"refused: {answer.code} {answer.remark}")
        return took_s * 1e6 / len(requests), answers

    def _answer(self, number: int) -> PlainHeader:
        while True:
            data = self._sockets[number].recv(1 << 16)
            if not data:
                raise RuntimeError("the broker closed the connection")
            for is_binary, header, _ in self._decoders[number].feed(data):
                return decode_plain(is_binary, header)


def _round(clients: Clients, numbers: "count[int]", took: Rounds) -> None:
    now_ms = system_clock()
    queues = [number % _QUEUES for number in range(_REQUESTS)]

    def measured(kind: str, requests: list[bytes]) -> list[PlainHeader]:
        cost_us, answers = clients.ask(requests)
        took[kind].append(cost_us)
        return answers

    measured("plain", [frames.send(next(numbers), queue) for queue in queues])
    times_ms = [now_ms + _HOUR_MS + next(numbers) * 7 % _HOUR_MS for _ in queues]
    timed = zip(times_ms, queues, strict=True)
    measured("timed", [delivery_frames.timed_send(next(numbers), ms, q) for ms, q in timed])
    measured("delayed", [delivery_frames.delayed_send(next(numbers), 18, q) for q in queues])
    halves = measured("half", [delivery_frames.half_send(next(numbers), q) for q in queues])
    places = [where(answer) for answer in halves]
    measured("end", [delivery_frames.commit(next(numbers), *place) for place in places])


def where(answer: PlainHeader) -> tuple[int, int]:
    """Queue offset and log offset of a half message, as its send was answered."""
    fields = answer.ext_fields or {}
    return int(fields["queueOffset"]), OffsetId.parse(fields["msgId"]).log_offset
