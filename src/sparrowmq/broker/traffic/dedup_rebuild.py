"""The window of a topic, read from the log: what a broker knew before it was stopped or killed.

```
queues of the topic        ────────a──b───────c────►   sent, and what was delivered later
delay levels, timers       ───────────────d────────►   sent; recall markers
half messages              ──────────h────────h────►   prepared, prepared again when asked about
operations                 ─────────────────o──────►   half messages that have ended
                                     ◄── read from the newest to the oldest
```

All queues are read backwards at once, always the one that has come least far, until the window is
full or what comes next is too old. `replay` then goes through what was found in the order of the
log, as the broker did: the first record with an identity is the message, and one that was recalled,
or a half message that ended without a commit, frees it.

Reading is done in slices of the loop's time, and by workers where the device is needed.
"""

import heapq
from collections.abc import Iterable, Iterator
from enum import Enum
from struct import Struct
from typing import TYPE_CHECKING

import msgspec

from sparrowmq.broker.traffic.dedup_window import DedupWindow
from sparrowmq.protocol.dedup import DedupRule, identity_of
from sparrowmq.protocol.indexed_properties import indexed_properties
from sparrowmq.protocol.names import (
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from sparrowmq.protocol.properties import (
    DELAY_LEVEL,
    REAL_TOPIC,
    TIMER_DELETE_UNIQUE_KEY,
    TIMER_OUT_MS,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_PREPARED,
    parse_properties,
)
from sparrowmq.protocol.record import Record, RecordError, decode_record

if TYPE_CHECKING:
    from sparrowmq.broker.broker import Broker
    from sparrowmq.broker.reports import Slice

_UNIT = Struct(">qiq")
_MOST_UNITS = 512
_LEAST_UNITS = 16
_GAP_BYTES = 4096
_READ_BYTES = 256 * 1024
_WAITING_TOPICS = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC})


class Kind(Enum):
    """What a record says about a topic's messages."""

    SENT = "sent"
    """A client sent it."""
    TIMED = "timed"
    """A client sent it with a delivery time, for which it waits."""
    PREPARED = "prepared"
    """A client sent it as a half message."""
    MOVED = "moved"
    """A half message was stored again."""
    COMMITTED = "committed"
    """A half message was delivered, or waits for its time."""
    RECALLED = "recalled"
    """The timed message with `unique_id` is taken back."""
    ENDED = "ended"
    """Half messages at the queue offsets `ended` have ended."""


_SENDS = frozenset({Kind.SENT, Kind.TIMED, Kind.PREPARED})


class Event(msgspec.Struct, gc=False):
    """One record, as far as it matters."""

    log_offset: int
    age_ms: int
    kind: Kind
    identity: str = ""
    unique_id: str = ""
    queue_offset: int = 0
    ended: tuple[int, ...] = ()


class Known(msgspec.Struct, gc=False):
    """A message that a window remembers."""

    log_offset: int
    age_ms: int
    half_offset: int = -1
    """Where it waits as a half message; -1 for what does not, or is committed."""


class _Replay:
    """Messages that are known, after one event after the other."""

    def __init__(self) -> None:
        self.known: dict[str, Known] = {}
        self._halves: dict[int, str] = {}
        """Identities of half messages by their queue offsets."""
        self._timed: dict[str, tuple[str, int]] = {}
        """Identities and log offsets of timed messages by their unique ids."""

    def take(self, event: Event) -> None:
        match event.kind:
            case Kind.SENT | Kind.TIMED | Kind.PREPARED:
                self._sent(event)
            case Kind.MOVED:
                self._wait_at(event)
            case Kind.COMMITTED:
                if event.identity in self.known:
                    self.known[event.identity].half_offset = -1
            case Kind.RECALLED:
                self._recall(event.unique_id)
            case Kind.ENDED:
                for offset in event.ended:
                    self._end(offset)

    def _sent(self, event: Event) -> None:
        if event.identity in self.known:
            return  # stored before the topic was de-duplicated
        self.known[event.identity] = Known(event.log_offset, event.age_ms)
        if event.kind is Kind.TIMED:
            self._timed[event.unique_id] = (event.identity, event.log_offset)
        elif event.kind is Kind.PREPARED:
            self.known[event.identity].half_offset = 0
            self._wait_at(event)

    def _wait_at(self, event: Event) -> None:
        message = self.known.get(event.identity)
        if message is not None and message.half_offset >= 0:
            # After a restart, a transaction can be ended by its present place only.
            message.log_offset, message.half_offset = event.log_offset, event.queue_offset
            self._halves[event.queue_offset] = event.identity

    def _recall(self, unique_id: str) -> None:
        identity, log_offset = self._timed.get(unique_id, ("", -1))
        message = self.known.get(identity)
        if message is not None and message.log_offset == log_offset:
            del self.known[identity]

    def _end(self, half_offset: int) -> None:
        identity = self._halves.get(half_offset, "")
        message = self.known.get(identity)
        if message is not None and message.half_offset == half_offset:
            del self.known[identity]


def replay(events: Iterable[Event]) -> dict[str, Known]:
    """What is known after these events, which come in the order of the log; the oldest first."""
    state = _Replay()
    for event in events:
        state.take(event)
    return state.known


async def read_window(broker: "Broker", topic: str, rule: DedupRule) -> DedupWindow:
    """The window of a topic as the log has it now. Raises OSError."""
    log = _LogReading(broker, topic, rule)
    with broker.slices.begin() as turn:
        await log.read(turn)
        window = DedupWindow(rule)
        known = replay(sorted(log.events, key=lambda event: event.log_offset))
        now_ms = broker.monotonic()
        await turn.pause()
        found = sorted(known.items(), key=lambda item: item[1].log_offset)
        for identity, message in found[-rule.ids :]:
            window.add(identity, message.log_offset, now_ms - message.age_ms)
            if turn.is_over:
                await turn.pause()
        window.expire(broker.monotonic())
    return window


class _Queue(msgspec.Struct):
    """A queue that is read backwards."""

    topic: str
    queue_id: int
    low: int
    at: int
    """Units from here on have been read."""


class _LogReading:
    """Reads what the log says about the messages of one topic."""

    def __init__(self, broker: "Broker", topic: str, rule: DedupRule) -> None:
        self.events: list[Event] = []
        self._broker = broker
        self._topic = topic
        self._rule = rule
        self._real_topic = f"{REAL_TOPIC}\x01{topic}\x02"
        store = broker.store
        # A topic that was deleted and made again: what was sent before is another topic's.
        self._deleted_before = store.deletions.get(topic, 0)
        # All ends in one go: what comes later is not known yet when this is read.
        self._queues = [
            _Queue(name, queue_id, *store.queue_range(name, queue_id))
            for name, queue_id in store.queues()
            if name == topic or name in _WAITING_TOPICS
        ]
        self._chunk = max(_LEAST_UNITS, min(_MOST_UNITS, rule.ids // max(1, len(self._queues))))
        self._sent = 0
        self._now_ms = broker.delivery.clock.now_ms()

    async def read(self, turn: "Slice") -> None:
        """Read all queues, the youngest records first, until nothing more can matter."""
        # So many that the oldest of them may not be next to each other in the log.
        enough = self._rule.ids + self._chunk * len(self._queues)
        heap: list[tuple[int, int]] = []
        for number, queue in enumerate(self._queues):
            self._push(heap, number, queue)
        while heap and self._sent < enough:
            _, number = heapq.heappop(heap)
            queue = self._queues[number]
            if await self._read_chunk(queue, turn):
                self._push(heap, number, queue)

    def _push(self, heap: list[tuple[int, int]], number: int, queue: _Queue) -> None:
        if queue.at > queue.low:
            last = self._broker.store.units(queue.topic, queue.queue_id, queue.at - 1, 1)
            if last:
                heapq.heappush(heap, (-last[0][0], number))

    async def _read_chunk(self, queue: _Queue, turn: "Slice") -> bool:
        """Read some units before those that were read; whether there may be more that matter."""
        first = max(queue.low, queue.at - self._chunk)
        units = self._broker.store.units(queue.topic, queue.queue_id, first, queue.at - first)
        queue.at = first
        oldest_ms = -1
        for data, log_offset in await self._records(units):
            event = self._event(queue.topic, data, log_offset)
            if isinstance(event, Event):
                oldest_ms = max(oldest_ms, event.age_ms)
                if event.age_ms < self._rule.time_ms and event.log_offset >= self._deleted_before:
                    self.events.append(event)
                    self._sent += event.kind in _SENDS
            else:
                oldest_ms = max(oldest_ms, event)
            if turn.is_over:
                await turn.pause()
        return oldest_ms < self._rule.time_ms

    async def _records(self, units: list[tuple[int, int, int]]) -> list[tuple[bytes, int]]:
        """The bytes of records, neighbours read together; those that are gone are left out."""
        store, found = self._broker.store, []
        for run in _runs(units, store.min_log_offset):
            start = run[0][0]
            length = run[-1][0] + run[-1][1] - start
            data = store.read_log_at_once(start, length)
            if data is None:
                data = await self._broker.workers.run(store.read_log, start, length)
            found += [
                (data[offset - start : offset - start + size], offset) for offset, size, _ in run
            ]
        return found

    def _event(self, topic: str, data: bytes, log_offset: int) -> Event | int:
        """What a record says, or only its age."""
        try:
            record = decode_record(data, 0, check_crc=False)
        except RecordError:
            return -1
        steps = self._broker.delivery.clock
        # A clock that was set back while the machine was off may have it stored in the future.
        age_ms = max(0, self._now_ms - record.store_timestamp - steps.since(log_offset))
        event = event_of(record, age_ms, topic, self._topic, self._real_topic)
        return age_ms if event is None else event


def event_of(
    record: Record, age_ms: int, stored_in: str, topic: str, real_topic: str
) -> Event | None:
    """What a record says about the messages of a topic, None if nothing."""
    if stored_in == TRANS_OP_HALF_TOPIC:
        numbers = record.body.split(b",")
        ended = tuple(int(part) for part in numbers if part.isdigit() and len(part) < 20)
        return Event(record.log_offset, age_ms, Kind.ENDED, ended=ended)
    text = record.properties.decode("utf-8", "replace")
    if stored_in != topic and real_topic not in text:
        return None
    unique_id = indexed_properties(text)[1]
    identity = identity_of(text)
    if not identity:
        return None
    kind = Kind.SENT
    if "REAL_" in text or "TRAN" in text or record.prepared_transaction_offset:
        fields = parse_properties(text)
        if stored_in != topic and fields.get(REAL_TOPIC) != topic:
            return None
        special = _special_kind(record, fields, stored_in, topic)
        if special is None:
            return None
        kind = special
        if kind is Kind.RECALLED:
            unique_id = fields[TIMER_DELETE_UNIQUE_KEY].removeprefix(f"{topic}+")
    return Event(record.log_offset, age_ms, kind, identity, unique_id, record.queue_offset)


def _special_kind(
    record: Record, fields: dict[str, str], stored_in: str, topic: str
) -> Kind | None:
    """What a record is that waited, or waits; None for a delivery of what was sent before."""
    if stored_in == TRANS_HALF_TOPIC:
        return Kind.MOVED if TRANSACTION_CHECK_TIMES in fields else Kind.PREPARED
    if record.prepared_transaction_offset or (
        stored_in == topic and fields.get(TRANSACTION_PREPARED, "").lower() == "true"
    ):
        return Kind.COMMITTED
    if TIMER_DELETE_UNIQUE_KEY in fields and stored_in == TIMER_TOPIC:
        return Kind.RECALLED
    if stored_in == TIMER_TOPIC:
        return Kind.TIMED
    if stored_in == topic and fields.get(REAL_TOPIC) == topic:
        was_delayed = TIMER_OUT_MS in fields or fields.get(DELAY_LEVEL, "0") not in ("0", "")
        return None if was_delayed else Kind.SENT
    return Kind.SENT


def _runs(units: list[tuple[int, int, int]], low: int) -> Iterator[list[tuple[int, int, int]]]:
    """Units whose records are read together."""
    run: list[tuple[int, int, int]] = []
    for unit in units:
        offset, size, _ = unit
        if offset < low or size <= 0 or size > 1 << 30:
            continue  # expired, or a blank
        end = run[-1][0] + run[-1][1] if run else 0
        if run and (offset - end > _GAP_BYTES or offset + size - run[0][0] > _READ_BYTES):
            yield run
            run = []
        run.append(unit)
    if run:
        yield run
