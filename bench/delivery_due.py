"""How late messages are delivered when many are due at once, in a separate broker process."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import delivery_frames
from bench.contest import say
from bench.delivery_pending import Sender, cpu_s
from bench.figures import Figure, at_most
from sparrowmq.clock import system_clock
from sparrowmq.protocol.properties import TIMER_DELIVER_MS, decode_properties
from sparrowmq.protocol.record import Record, decode_record
from tests.faults.broker_process import BrokerProcess
from tests.faults.raw_wire import PULL_MESSAGE, RawClient
from tests.guard import frames

_AT_ONCE = 100_000
_STEADY_S = 5
_STEADY_RATE = 10_000
_QUEUES = 8
_SENT_AT_ONCE = 500
_GET_MAX_OFFSET = 30
_LONGEST_S = 120.0


def due_at_once(folder: Path) -> list[Figure]:
    """100,000 messages of one second: until the last of them is in its queue."""
    late_ms, cpu_s = _lateness(folder, lambda number: number % 1000, _AT_ONCE)
    work = f"{_AT_ONCE:,} due in one second"
    return [
        Figure(work, "CPU of the broker", "s", cpu_s),
        Figure(work, "until all are delivered", "s", max(late_ms) / 1000, None, at_most(10)),
    ]


def due_steadily(folder: Path) -> list[Figure]:
    """10,000 messages due in each of some seconds: how late each is, and that none is early."""
    count = _STEADY_S * _STEADY_RATE
    late_ms, _ = _lateness(folder, lambda number: number * 1000 // _STEADY_RATE, count)
    work = f"{_STEADY_RATE:,} due a second"
    return [
        Figure(work, "before their time", "messages", sum(ms < 0 for ms in late_ms), None, _NONE),
        Figure(work, "late, median", "ms", float(sorted(late_ms)[count // 2])),
        Figure(work, "late, at most", "ms", float(max(late_ms)), None, at_most(1000)),
    ]


_NONE = at_most(0)


def _lateness(folder: Path, after_ms: Callable[[int], int], count: int) -> tuple[list[int], float]:
    """Send `count` timers, let them become due, and read when each was stored in its queue.

    How late each was, in milliseconds, and the broker's CPU seconds from the last send on.
    """
    folder.mkdir(parents=True)
    broker = BrokerProcess(folder / "data", "--busy-lag", "60s")
    try:
        # Enough time to send all of them before the first is due.
        start_ms = system_clock() + 5_000 + count // 10
        say(f"{count:,} messages, due from {(start_ms - system_clock()) / 1000:.0f} s on")
        with Sender(broker) as sender:
            for first in range(0, count, _SENT_AT_ONCE):
                numbers = range(first, first + _SENT_AT_ONCE)
                sender.send([_timer(number, start_ms + after_ms(number)) for number in numbers])
        if system_clock() > start_ms:
            raise RuntimeError("too slow to send all of them before they were due")
        before_s = cpu_s(broker.process.pid)
        with RawClient(broker.port) as client:
            _wait_for(client, count)
            took_s = cpu_s(broker.process.pid) - before_s
            late_ms = [late for queue in range(_QUEUES) for late in _late_ms(client, queue)]
        return late_ms, took_s
    finally:
        broker.kill()


def _timer(number: int, due_ms: int) -> bytes:
    return delivery_frames.timed_send(number, due_ms, number % _QUEUES)


def _wait_for(client: RawClient, count: int) -> None:
    end_s = time.monotonic() + _LONGEST_S
    while _delivered(client) < count:
        if time.monotonic() > end_s:
            raise RuntimeError(f"{_delivered(client)} of {count} after {_LONGEST_S:.0f} s")
        time.sleep(0.5)


def _delivered(client: RawClient) -> int:
    total = 0
    for queue_id in range(_QUEUES):
        fields = {"topic": frames.TOPIC, "queueId": str(queue_id)}
        total += int(client.call(_GET_MAX_OFFSET, fields)[0].extFields["offset"])
    return total


def _late_ms(client: RawClient, queue_id: int) -> Iterator[int]:
    for record in _records(client, queue_id):
        due_ms = int(decode_properties(record.properties)[TIMER_DELIVER_MS])
        yield record.store_timestamp - due_ms


def _records(client: RawClient, queue_id: int) -> Iterator[Record]:
    offset = 0
    while True:
        fields = {"consumerGroup": "bench", "topic": frames.TOPIC, "queueId": str(queue_id)}
        fields |= {"queueOffset": str(offset), "maxMsgNums": "4096", "maxMsgBytes": str(4 << 20)}
        fields |= {"sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0"}
        fields |= {"subVersion": "0", "subscription": "*", "expressionType": "TAG"}
        _, body = client.call(PULL_MESSAGE, fields)
        at = 0
        while at < len(body):
            record = decode_record(body, at)
            at += record.size
            offset = record.queue_offset + 1
            yield record
        if not body:
            return
