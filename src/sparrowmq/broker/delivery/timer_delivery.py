"""Timers: delivery of messages at the time they ask for.

A timer that is due takes one of these ways, checked in this order (`_fire`):

```
entry of the index ─┬ its message says a later time  ─▶ rescheduled: the index is only derived
                    ├ it is a recall                 ─▶ remembered until its message comes
                    ├ its message was recalled       ─▶ dropped
                    ├ a copy that Apache rolled over ─▶ dropped, the first one is enough
                    ├ delivered before a crash       ─▶ dropped
                    ├ clock was set forward since    ─▶ stored again with the rest of its delay
                    └ otherwise                      ─▶ delivered
```

Everything is taken in batches of 64 with a turn of the loop in between, so that a million timers
that are due in the same second delay a send by one batch and not by all of them.
"""

import asyncio
from collections import deque
from contextlib import suppress

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.delivery.alarm import repeat_rounds
from sparrowmq.broker.delivery.delay_levels import read_own_queue
from sparrowmq.broker.delivery.delay_properties import slot_ms
from sparrowmq.broker.delivery.earlier_deliveries import was_delivered_before
from sparrowmq.broker.delivery.placement import Placement, append, fields_of
from sparrowmq.broker.delivery.redelivery import copy_to, deliver, records_of
from sparrowmq.broker.delivery.timer_index import TimerIndex, is_recall, offset_of, time_of
from sparrowmq.broker.delivery.timer_persistence import entry_of_fields, entry_of_record, spill
from sparrowmq.broker.send_checks import size_fault
from sparrowmq.protocol.names import TIMER_TOPIC
from sparrowmq.protocol.properties import (
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_S,
    TIMER_DELETE_UNIQUE_KEY,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    UNIQUE_KEY,
)
from sparrowmq.protocol.record import Record, RecordError
from sparrowmq.store.errors import MessageTooLarge

_BATCH = 64
_SPILL_AGAIN_MS = 200
_RECALL_KEPT_MS = 2_000
_TIMES_BYTES = 80
"""An upper bound for the two properties that say when a timer was stored and delivered."""


async def deliver_timers(broker: Broker) -> None:
    """Deliver forever."""
    alarm = broker.delivery.timers.alarm
    trouble = "messages with a delivery time wait"
    await repeat_rounds(broker, alarm, _deliver_and_spill, trouble, broker.clock)


async def _deliver_and_spill(broker: Broker) -> int | None:
    due_ms = await deliver_round(broker)
    async with broker.uncancellable:
        await spill(broker)
    if broker.delivery.timers.wants_to_spill(broker.store.max_offset(TIMER_TOPIC, 0)):
        soon_ms = broker.clock() + _SPILL_AGAIN_MS
        due_ms = soon_ms if due_ms is None else min(due_ms, soon_ms)
    return due_ms


async def deliver_round(broker: Broker) -> int | None:
    """Deliver everything that is due; returns when the next message is, None if none waits.

    Raises DiskFull, StoreStopped; what was delivered before is not delivered again.
    """
    timers, store = broker.delivery.timers, broker.store
    has_delivered = False
    while True:
        now_ms, queue_end = broker.delivery.clock.now_ms(), store.max_offset(TIMER_TOPIC, 0)
        batch = timers.take_due(now_ms, _BATCH)
        if not batch:
            if has_delivered:
                timers.reached(now_ms, queue_end)
            return timers.next_due_ms
        has_delivered = True
        try:
            await _deliver_batch(broker, batch)
            timers.reached(time_of(batch[-1]) - 1, queue_end)
        finally:
            timers.batch_done(store.max_offset(TIMER_TOPIC, 0), store.max_log_offset)
        await asyncio.sleep(0)


async def _deliver_batch(broker: Broker, batch: list[int]) -> None:
    timers, clock = broker.delivery.timers, broker.delivery.clock
    left = deque(batch)
    try:
        found = await _read_all(broker, sorted(map(offset_of, batch)))
        while left:
            entry = left[0]
            record = found.get(offset_of(entry))
            if record is None:
                broker.log.error("the message of timer %d is gone or damaged", offset_of(entry))
            else:
                _fire(broker, entry, record, await clock.saved_now_ms())
            left.popleft()
    finally:
        for entry in left:  # no space, or the broker is stopping
            timers.add_again(entry)
    _forget_old_recalls(timers, time_of(batch[-1]))


async def _read_all(broker: Broker, offsets: list[int]) -> dict[int, Record]:
    """The records at these offsets; adjacent ones are read together."""
    found: dict[int, Record] = {}
    position = 0
    while position < len(offsets):
        end = position + 1
        while end < len(offsets) and offsets[end] == offsets[end - 1] + 1:
            end += 1
        at = offsets[position]
        while at <= offsets[end - 1]:
            part = await read_own_queue(broker, TIMER_TOPIC, 0, at, offsets[end - 1] + 1 - at)
            with suppress(RecordError):  # its offset will be found missing, and reported
                found.update((record.queue_offset, record) for record in records_of(part))
            at = max(at + 1, part.next_offset)
        position = end
    return found


def _fire(broker: Broker, entry: int, record: Record, now_ms: int) -> None:
    timers = broker.delivery.timers
    fields = fields_of(record)
    true_entry = entry_of_fields(fields, record)
    if true_entry is None:
        broker.log.error("the message at log offset %d has no delivery time", record.log_offset)
        return
    if time_of(true_entry) > now_ms:
        timers.reschedule(true_entry)  # a wrong entry must not deliver a message early
        return
    if is_recall(entry):
        timers.recalled[fields[TIMER_DELETE_UNIQUE_KEY]] = time_of(entry)
        return
    if timers.recalled and _is_recalled(timers, fields):
        broker.log.info("message %s was recalled", fields.get(UNIQUE_KEY))
        return
    if TIMER_ROLL_TIMES in fields and _is_second_copy(broker, true_entry, record, fields):
        return
    if was_delivered_before(broker, 0, record, fields):
        return
    left_ms = _delay_over_ms(broker, true_entry, record, fields) - now_ms
    if left_ms > 0 and wait_longer(broker, record, fields, left_ms, now_ms):
        return
    times = {TIMER_ENQUEUE_MS: str(record.store_timestamp), TIMER_DEQUEUE_MS: str(now_ms)}
    room = broker.config.max_properties_bytes - len(record.properties)
    deliver(broker, record, fields, times if room > _TIMES_BYTES else {})


def _delay_over_ms(broker: Broker, entry: int, record: Record, fields: dict[str, str]) -> int:
    """When its delay is over: later than its time says if the clock was set forward since.

    A delivery time is a time of day. If the clock was set back, a delay ends by that time, too.
    """
    if TIMER_DELAY_S not in fields and TIMER_DELAY_MS not in fields:
        return time_of(entry)
    return time_of(entry) + max(0, broker.delivery.clock.since(record.log_offset))


def wait_longer(
    broker: Broker, record: Record, fields: dict[str, str], left_ms: int, now_ms: int
) -> bool:
    """Store a message again with what is left of its delay; False if that is impossible.

    It could not wait in the index alone: marks say that everything due by its time is delivered.
    """
    due_ms = now_ms + left_ms
    wish = {TIMER_DELAY_MS: str(left_ms), TIMER_OUT_MS: str(slot_ms(due_ms))}
    kept = {name: value for name, value in fields.items() if name != TIMER_DELAY_S}
    put = copy_to(record, TIMER_TOPIC, 0, kept | wish)
    if size_fault(broker, len(put.body), len(put.properties)) is not None:
        return False
    try:
        append(broker, Placement(put, due_ms), now_ms)
    except MessageTooLarge:
        return False
    return True


def _is_second_copy(broker: Broker, entry: int, record: Record, fields: dict[str, str]) -> bool:
    """Apache stores a message due in more than two days again on the way; the first is enough."""
    store, key = broker.store, fields.get(UNIQUE_KEY, "")
    for log_offset in store.find_by_key(TIMER_TOPIC, key, 0, broker.clock(), 64).log_offsets:
        first = store.read_record(log_offset) if log_offset < record.log_offset else None
        first_entry = entry_of_record(first) if first is not None else None
        if first_entry is not None and time_of(first_entry) == time_of(entry):
            return True
    return False


def _is_recalled(timers: TimerIndex, fields: dict[str, str]) -> bool:
    key = recall_key(fields.get(REAL_TOPIC, ""), fields.get(UNIQUE_KEY, ""))
    return timers.recalled.pop(key, None) is not None


def recall_key(topic: str, msg_id: str) -> str:
    """The key by which a recall names its message, as Apache's TimerMessageStore.buildDeleteKey."""
    return f"{topic}+{msg_id}"


def _forget_old_recalls(timers: TimerIndex, time_ms: int) -> None:
    """Drop recalls whose message never came."""
    old = [key for key, at in timers.recalled.items() if at + _RECALL_KEPT_MS < time_ms]
    for key in old:
        del timers.recalled[key]
