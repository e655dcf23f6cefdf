"""Deliveries before a kill: a broker had delivered more than its saved progress says.

```
queue that waits   ──────────┬──────────────────────┬────────►
                     saved   │ delivered, not saved │ not yet
                             └ looked up by unique id, 8 of these end the search
```

Deliveries are in the log, and the key index finds them. They have an order, apart from dead
letters, which are not looked up. So eight messages in a row that were not delivered end the search,
and nothing is looked up after that. Timers lose their order when the clock is set: as long as the
log holds anything from before a step, every timer from before the start is looked up.
"""

import sys
from collections.abc import Iterator, Mapping

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.delivery.placement import fields_of, without
from sparrowmq.protocol.names import TIMER_TOPIC
from sparrowmq.protocol.properties import (
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_S,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_OUT_MS,
    UNIQUE_KEY,
)
from sparrowmq.protocol.record import Record

_MOST_COPIES = 64
_ENOUGH = 8
_DELAYS = frozenset({TIMER_DELAY_MS, TIMER_DELAY_S})
_LENGTHS = _DELAYS | {TIMER_OUT_MS}
_DELIVERY_TIMES = frozenset({TIMER_DEQUEUE_MS, TIMER_ENQUEUE_MS})


def was_delivered_before(
    broker: Broker, level: int, record: Record, fields: Mapping[str, str]
) -> bool:
    """Whether a due message was delivered before the broker started. `level` is 0 for timers."""
    delivery = broker.delivery
    if record.log_offset >= delivery.log_at_start:
        return False
    left = delivery.lookups_left.get(level, _ENOUGH)
    is_out_of_order = level == 0 and delivery.clock.was_set
    if not left and not is_out_of_order:
        return False
    found = _was_delivered(broker, record, fields)
    delivery.lookups_left[level] = _ENOUGH if found else max(0, left - 1)
    return found


def _was_delivered(broker: Broker, record: Record, fields: Mapping[str, str]) -> bool:
    """Whether the log has this delivery. A message that a retried send stored twice may count as
    delivered when its duplicate was."""
    if any(
        without(copy, _DELIVERY_TIMES) == without(fields, _DELIVERY_TIMES)
        for copy in _later(broker, fields.get(REAL_TOPIC, ""), record, fields)
    ):
        return True
    if record.topic != TIMER_TOPIC or fields.keys().isdisjoint(_DELAYS):
        return False
    if not broker.delivery.clock.was_set:
        return False
    # Or the clock was set forward, and it was stored again with the rest of its delay. It may have
    # been set back since: the sum of the steps says nothing about that.
    asked = {name: fields.get(name) for name in _DELAYS}
    return any(
        without(copy, _LENGTHS) == without(fields, _LENGTHS)
        and {name: copy.get(name) for name in _DELAYS} != asked
        for copy in _later(broker, TIMER_TOPIC, record, fields)
    )


def _later(
    broker: Broker, topic: str, record: Record, fields: Mapping[str, str]
) -> Iterator[dict[str, str]]:
    """Properties of records stored in a topic after `record` that seem to be the same message."""
    key, store = fields.get(UNIQUE_KEY, ""), broker.store
    if not topic or not key:
        return
    # Not limited by store time: the clock may have been set.
    for offset in store.find_by_key(topic, key, 0, sys.maxsize, _MOST_COPIES).log_offsets:
        copy = store.read_record(offset) if offset > record.log_offset else None
        if (
            copy is not None
            and copy.born_timestamp == record.born_timestamp
            and copy.reconsume_times == record.reconsume_times
            and copy.body == record.body
        ):
            yield fields_of(copy)
