"""Finding the pending half messages again when a broker starts: those no operation has ended."""

from collections.abc import Iterator, Mapping

from sparrowmq.broker.consumer_offsets import ConsumerOffsets
from sparrowmq.broker.delivery.clock_steps import ClockSteps
from sparrowmq.broker.delivery.transactions_halves import Halves
from sparrowmq.clock import Clock
from sparrowmq.protocol.names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from sparrowmq.protocol.properties import (
    CHECK_IMMUNITY_TIME_S,
    TRANSACTION_CHECK_TIMES,
    UNIQUE_KEY,
    decode_properties,
)
from sparrowmq.protocol.record import Record, RecordError, decode_record
from sparrowmq.store.messages import ReadStatus
from sparrowmq.store.store import ColdRead, Store

TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
"""Under this name the offsets of both topics are kept."""
_BATCH = 1_000
_BATCH_BYTES = 4 * 1024 * 1024


def recover_halves(
    store: Store,
    offsets: ConsumerOffsets,
    clock: ClockSteps,
    monotonic: Clock,
    *,
    timeout_ms: int,
    interval_ms: int,
) -> Halves:
    """What was pending when the store was last written."""
    halves = Halves()
    now_ms = monotonic()
    first = _start(store, offsets, TRANS_HALF_TOPIC)
    ended: set[int] = set()
    for record in records(store, TRANS_OP_HALF_TOPIC, _start(store, offsets, TRANS_OP_HALF_TOPIC)):
        named = [offset for offset in ended_offsets(record) if offset >= first]
        halves.noted(record.queue_offset, max(named, default=-1))
        ended.update(named)
    counted: dict[tuple[str, int], int] = {}
    for record in records(store, TRANS_HALF_TOPIC, first):
        if record.queue_offset in ended:
            continue
        fields = decode_properties(record.properties)
        checks = count_of(fields.get(TRANSACTION_CHECK_TIMES))
        name = fields.get(UNIQUE_KEY, "")
        before = halves.get(counted.get((name, checks - 1), -1))
        if before is not None and name:
            halves.end(before)  # stored again, and killed before the operation was written
        wait_ms = interval_ms if checks else immunity_ms(fields, timeout_ms)
        # Not longer than a new one, should the clock have been set back meanwhile.
        left_ms = min(max(0, wait_ms - clock.age_ms(record)), wait_ms)
        halves.add(record.queue_offset, record.log_offset, now_ms + left_ms, checks)
        counted[name, checks] = record.queue_offset
    return halves


def immunity_ms(fields: Mapping[str, str], timeout_ms: int) -> int:
    """How long after it was stored a half message is asked about first."""
    text = fields.get(CHECK_IMMUNITY_TIME_S, "")
    return max(timeout_ms, count_of(text) * 1000)


def count_of(text: str | None) -> int:
    """A number in a property, 0 for what is none."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else 0


def ended_offsets(record: Record) -> list[int]:
    """The half offsets an operation message names: `17,18,`; before 5.0 a single number."""
    parts = record.body.split(b",")
    return [int(part) for part in parts if part.isdigit() and len(part) < 20]


def _start(store: Store, offsets: ConsumerOffsets, topic: str) -> int:
    low, high = store.queue_range(topic, 0)
    return min(max(offsets.get(TRANSACTION_GROUP, topic, 0), low), high)


def records(store: Store, topic: str, offset: int, queue_id: int = 0) -> Iterator[Record]:
    """Every readable record of a queue from `offset` on; may wait for the device."""
    end = store.max_offset(topic, queue_id)
    while offset < end:
        found = store.read_queue(topic, queue_id, offset, max_count=_BATCH, max_bytes=_BATCH_BYTES)
        if isinstance(found, ColdRead):
            found = found.load()
        if found.status is ReadStatus.FOUND:
            yield from _decoded(b"".join(found.chunks))
        offset = max(offset + 1, found.next_offset)


def _decoded(data: bytes) -> Iterator[Record]:
    at = 0
    while at < len(data):
        try:
            record = decode_record(data, at, check_crc=False)
        except RecordError:
            return
        at += record.size
        yield record
