"""The window of a topic, read from the log: what a broker knew before it was stopped or killed.

```
queues of the topic        ────────a──b───────c────►   sent, and delivered after a wait
delay levels, timers       ───────────────d────────►   sent; recall markers
half messages              ──────────h────────h────►   prepared, stored again at a check
operations                 ─────────────────o──────►   half messages that have ended
                                     ◄── read from the newest to the oldest
```

All queues are read backwards together, always the one with the newest unread part, until the window
is full or the next records are too old. `WindowReplay` then goes through the records in the order
of the log, as the broker did: the first record with an identity is the message, and one that was
recalled, or a half message that ended without a commit, frees it.

Reading takes slices of the loop's time, and is done by workers if the device is needed.
"""

import heapq
from collections.abc import Iterator
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from sparrowmq.broker.traffic.dedup_window import TopicWindow
from sparrowmq.protocol.dedup import DedupRule, identity_of
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
    UNIQUE_KEY,
    parse_properties,
)
from sparrowmq.protocol.record import RecordError, decode_record
from sparrowmq.protocol.record_layout import HEAD_SIZE, HOSTS_V6, MAGIC_V1, head_of

if TYPE_CHECKING:
    from sparrowmq.broker.broker import Broker
    from sparrowmq.net.slices import Slice

_MOST_UNITS = 512
_LEAST_UNITS = 16
_GAP_BYTES = 4096
_READ_BYTES = 256 * 1024
_STEP = 16
"""Records between two looks at the time."""
_SHORT_BODY = 8192
"""Longer than the body of any operation; no other bodies are read."""
_WAITING_TOPICS = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC})


class WindowEventKind(Enum):
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
    """A half message was delivered, or waits for its delivery time."""
    RECALLED = "recalled"
    """The timed message with `unique_id` is taken back."""
    ENDED = "ended"
    """Half messages at the queue offsets `ended` have ended."""


_SENDS = frozenset({WindowEventKind.SENT, WindowEventKind.TIMED, WindowEventKind.PREPARED})


class WindowEvent(msgspec.Struct, gc=False):
    """The relevant parts of one record."""

    log_offset: int
    age_ms: int
    kind: WindowEventKind
    identity: str = ""
    unique_id: str = ""
    queue_offset: int = 0
    ended: tuple[int, ...] = ()


class Known(msgspec.Struct, gc=False):
    """A message that a window remembers."""

    log_offset: int
    age_ms: int
    half_offset: int = -1
    """Where it waits as a half message; -1 if it does not, or is committed."""


class WindowReplay:
    """What is known after these events, which come in log order, oldest first."""

    def __init__(self) -> None:
        self.known: dict[str, Known] = {}
        self._halves: dict[int, str] = {}
        """Identities of half messages by their queue offsets."""
        self._timed: dict[str, tuple[str, int]] = {}
        """Identities and log offsets of timed messages by their unique ids."""

    def take(self, event: WindowEvent) -> None:
        """The next event."""
        match event.kind:
            case WindowEventKind.SENT | WindowEventKind.TIMED | WindowEventKind.PREPARED:
                self._sent(event)
            case WindowEventKind.MOVED:
                self._wait_at(event)
            case WindowEventKind.COMMITTED:
                if event.identity in self.known:
                    self.known[event.identity].half_offset = -1
            case WindowEventKind.RECALLED:
                self._recall(event.unique_id)
            case WindowEventKind.ENDED:
                for offset in event.ended:
                    self._end(offset)

    def _sent(self, event: WindowEvent) -> None:
        if event.identity in self.known:
            return  # stored before the topic was de-duplicated
        self.known[event.identity] = Known(event.log_offset, event.age_ms)
        if event.kind is WindowEventKind.TIMED:
            self._timed[event.unique_id] = (event.identity, event.log_offset)
        elif event.kind is WindowEventKind.PREPARED:
            self.known[event.identity].half_offset = 0
            self._wait_at(event)

    def _wait_at(self, event: WindowEvent) -> None:
        message = self.known.get(event.identity)
        if message is not None and message.half_offset >= 0:
            # After a restart, only its current offset can end a transaction.
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


async def read_window(broker: "Broker", topic: str, rule: DedupRule) -> TopicWindow:
    """The window of a topic as the log has it now. Raises OSError."""
    with broker.slices.begin() as turn:
        log = _LogReading(broker, topic, rule)
        await log.read(turn)
        state = WindowReplay()
        for number, event in enumerate(log.in_order()):
            state.take(event)
            if number % _STEP == 0 and turn.is_over:
                await turn.pause()
        window, now_ms = TopicWindow(rule), log.began_ms
        too_many = max(0, len(state.known) - rule.ids)
        for number, (identity, message) in enumerate(state.known.items()):
            if number >= too_many:
                window.add(identity, message.log_offset, now_ms - message.age_ms)
            if number % _STEP == 0 and turn.is_over:
                await turn.pause()
        window.expire(broker.monotonic())
    return window


class _Queue(msgspec.Struct):
    """A queue that is being read backwards."""

    topic: str
    queue_id: int
    low: int
    at: int
    """Units from here on have been read."""
    events: list[list[WindowEvent]] = []
    """The events read from them, the youngest part first."""


class _LogReading:
    """Reads what the log says about the messages of one topic."""

    def __init__(self, broker: "Broker", topic: str, rule: DedupRule) -> None:
        self._broker = broker
        self._topic = topic
        self._rule = rule
        self._real_topic = f"{REAL_TOPIC}\x01{topic}\x02"
        store = broker.store
        # If the topic was deleted and recreated, earlier messages belong to the old topic.
        self._deleted_before = store.deletions.get(topic, 0)
        # All ends at the same moment: later messages are not known yet when this is read.
        self._queues = [
            _Queue(name, queue_id, *store.queue_range(name, queue_id))
            for name, queue_id in store.queues()
            if name == topic or name in _WAITING_TOPICS
        ]
        self._chunk = max(_LEAST_UNITS, min(_MOST_UNITS, rule.ids // max(1, len(self._queues))))
        self._since = broker.delivery.clock.since
        self._sent = 0
        self._now_ms = broker.delivery.clock.now_ms()
        self.began_ms = broker.monotonic()
        """The time from which ages count."""

    def in_order(self) -> Iterator[WindowEvent]:
        """The events found, in the order of the log."""
        found = (chain.from_iterable(reversed(queue.events)) for queue in self._queues)
        return heapq.merge(*found, key=lambda event: event.log_offset)

    async def read(self, turn: "Slice") -> None:
        """Read all queues, the youngest records first, until nothing more can matter."""
        # Extra chunks, because the oldest ones may not be adjacent in the log.
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
        """Read some earlier units; returns whether there may be more that matter."""
        first = max(queue.low, queue.at - self._chunk)
        units = self._broker.store.units(queue.topic, queue.queue_id, first, queue.at - first)
        queue.at = first
        oldest_ms, events = -1, []
        for number, (data, log_offset) in enumerate(await self._records(units)):
            record = outline(data, log_offset)
            if record is None:
                continue
            # If the clock was set back while the machine was off, it may be dated in the future.
            age_ms = max(0, self._now_ms - record.store_timestamp - self._since(log_offset))
            oldest_ms = max(oldest_ms, age_ms)
            if age_ms < self._rule.time_ms and log_offset >= self._deleted_before:
                event = event_of(record, age_ms, queue.topic, self._topic, self._real_topic)
                if event is not None:
                    events.append(event)
                    self._sent += event.kind in _SENDS
            if number % _STEP == 0 and turn.is_over:
                await turn.pause()
        queue.events.append(events)
        return oldest_ms < self._rule.time_ms

    async def _records(self, units: list[tuple[int, int, int]]) -> list[tuple[bytes, int]]:
        """The bytes of records, adjacent ones read together; those that are gone are left out."""
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


class Outline(msgspec.Struct, gc=False):
    """The relevant fields of a record."""

    log_offset: int
    queue_offset: int
    store_timestamp: int
    prepared_transaction_offset: int
    body: bytes
    properties: bytes


_unpack = head_of(
    *("magic", "queue_offset", "sys_flag", "store_timestamp"),
    *("prepared_transaction_offset", "body_size"),
).unpack_from
_SHORTEST = HEAD_SIZE + 3


def outline(data: bytes, log_offset: int) -> Outline | None:
    """Read one record, half as fast again as `decode_record`; None if it is not a record.

    The record is not verified: the start has checked it, and left damaged ones out of the queues.
    """
    if len(data) >= _SHORTEST:
        magic, queue_offset, sys_flag, stored_ms, prepared, body_size = _unpack(data)
        topic_at = HEAD_SIZE + body_size
        if magic == MAGIC_V1 and not sys_flag & HOSTS_V6 and 0 <= body_size < len(data) - HEAD_SIZE:
            properties = data[topic_at + 3 + data[topic_at] :]
            body = data[HEAD_SIZE:topic_at] if body_size < _SHORT_BODY else b""
            return Outline(log_offset, queue_offset, stored_ms, prepared, body, properties)
    try:
        record = decode_record(data, 0, check_crc=False)
    except RecordError:
        return None
    return Outline(
        log_offset,
        record.queue_offset,
        record.store_timestamp,
        record.prepared_transaction_offset,
        record.body,
        record.properties,
    )


def event_of(
    record: Outline, age_ms: int, stored_in: str, topic: str, real_topic: str
) -> WindowEvent | None:
    """What a record says about the messages of a topic; None if nothing."""
    log_offset = record.log_offset
    if stored_in == TRANS_OP_HALF_TOPIC:
        numbers = record.body.split(b",")
        ended = tuple(int(part) for part in numbers if part.isdigit() and len(part) < 20)
        return WindowEvent(log_offset, age_ms, WindowEventKind.ENDED, ended=ended)
    text = record.properties.decode("utf-8", "replace")
    if stored_in != topic and real_topic not in text:
        return None
    identity = identity_of(text)
    if not identity:
        return None
    if "REAL_" in text or "TRAN" in text or record.prepared_transaction_offset:
        return _special_event(record, age_ms, stored_in, topic, identity, parse_properties(text))
    return WindowEvent(log_offset, age_ms, WindowEventKind.SENT, identity)


def _special_event(
    record: Outline,
    age_ms: int,
    stored_in: str,
    topic: str,
    identity: str,
    fields: dict[str, str],
) -> WindowEvent | None:
    """The same for messages that wait or waited; None for the delivery of an earlier send."""
    if stored_in != topic and fields.get(REAL_TOPIC) != topic:
        return None
    unique_id = fields.get(UNIQUE_KEY, "")
    kind = WindowEventKind.SENT
    if stored_in == TRANS_HALF_TOPIC:
        kind = (
            WindowEventKind.MOVED if TRANSACTION_CHECK_TIMES in fields else WindowEventKind.PREPARED
        )
    elif record.prepared_transaction_offset or _was_prepared(fields, stored_in, topic):
        kind = WindowEventKind.COMMITTED
    elif stored_in == TIMER_TOPIC and TIMER_DELETE_UNIQUE_KEY in fields:
        kind = WindowEventKind.RECALLED
        unique_id = fields[TIMER_DELETE_UNIQUE_KEY].removeprefix(f"{topic}+")
    elif stored_in == TIMER_TOPIC:
        kind = WindowEventKind.TIMED
    elif stored_in == topic and _was_delayed(fields, topic):
        return None
    return WindowEvent(record.log_offset, age_ms, kind, identity, unique_id, record.queue_offset)


def _was_prepared(fields: dict[str, str], stored_in: str, topic: str) -> bool:
    return stored_in == topic and fields.get(TRANSACTION_PREPARED, "").lower() == "true"


def _was_delayed(fields: dict[str, str], topic: str) -> bool:
    """Whether a message in its own queue was delivered there by the broker."""
    if fields.get(REAL_TOPIC) != topic:
        return False
    return TIMER_OUT_MS in fields or fields.get(DELAY_LEVEL, "0") not in ("0", "")


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
