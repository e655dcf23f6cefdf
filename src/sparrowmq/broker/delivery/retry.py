"""Messages that a group could not consume: retried later, and finally dead letters.

```
%RETRY%group   1 queue, created on demand; reached through a delay level or a delivery time
%DLQ%group     1 queue, created on demand; nothing comes back from there by itself
```

Body, tags, keys and every other property stay unchanged.
"""

from collections.abc import Mapping

import msgspec

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.delivery.placement import (
    Placement,
    fields_of,
    place,
    place_delayed,
    with_properties,
)
from sparrowmq.broker.delivery.redelivery import copy_to, dead_letter_topic, properties_without_crc
from sparrowmq.net.errors import RequestRefused
from sparrowmq.protocol.codes import Language, ResponseCode
from sparrowmq.protocol.group_config import GroupRetryPolicy, SubscriptionGroupConfig
from sparrowmq.protocol.ids import offset_id
from sparrowmq.protocol.names import (
    RETRY_PREFIX,
    TIMER_TOPIC,
    UNSENDABLE_TOPICS,
    retry_topic,
)
from sparrowmq.protocol.perm import is_writable
from sparrowmq.protocol.properties import (
    DELAY_LEVEL,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_S,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    WAIT_STORE_OK,
)
from sparrowmq.protocol.record import Record
from sparrowmq.store.messages import PutMessage

_FIRST_LEVEL = 3
"""The level of the first retry, 10 s."""


def group_of(broker: Broker, name: str) -> SubscriptionGroupConfig:
    """The consumer group with this name. Raises RequestRefused if it does not exist."""
    group = broker.groups.find(name)
    if group is None:
        raise RequestRefused(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"group {name[:200]} does not exist and broker {broker.config.broker_name}"
            " does not create it",
        )
    return group


def place_retry(
    broker: Broker,
    record: Record,
    group: SubscriptionGroupConfig,
    *,
    level: int,
    most_times: int | None,
    now_ms: int,
) -> Placement:
    """Decide where a message goes that a consumer sent back.

    `level` 0 lets the group's policy decide; a negative one means the dead-letter queue at once.
    `most_times` is the consumer's own limit, which replaces the group's. Raises RequestRefused.
    """
    is_brokers = record.topic in UNSENDABLE_TOPICS or record.topic == TIMER_TOPIC
    if is_brokers or not record.is_delivered:
        text = f"the message at {record.log_offset} lies in {record.topic}, which no group consumes"
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, text)
    fields = fields_of(record)
    fields.setdefault(RETRY_TOPIC, record.topic)
    fields[WAIT_STORE_OK] = "false"
    if not fields.get(ORIGIN_MESSAGE_ID, "").strip():
        fields[ORIGIN_MESSAGE_ID] = offset_id(record.store_host, record.log_offset)
    limit = group.retry_max_times if most_times is None else most_times
    if record.reconsume_times >= limit or level < 0:
        topic, queue_id = dead_letter_topic(broker, group.group_name), 0
        fields[DELAY_LEVEL] = "0"
        put = _counted(copy_to(record, topic, queue_id, fields))
        return _dead(put, fields[RETRY_TOPIC], put.reconsume_times)
    topic = retry_topic(group.group_name)
    queues = group.retry_queue_nums
    config = broker.topics.get_or_create(topic, queues)
    if not is_writable(config.perm):
        text = f"topic {topic} cannot be written (perm {config.perm} lacks 2)"
        raise RequestRefused(ResponseCode.NO_PERMISSION, text)
    queue_id = broker.rng.randrange(queues) if queues > 1 else 0
    put = _counted(copy_to(record, topic, queue_id, fields))
    if level == 0 and group.group_retry_policy != GroupRetryPolicy():
        delay_ms = group.group_retry_policy.delay_ms(record.reconsume_times)
        return _delayed_by(broker, put, fields, delay_ms, now_ms)
    level = level or _FIRST_LEVEL + record.reconsume_times
    return place_delayed(broker, put, fields, level, now_ms)


def place_dead_letter(broker: Broker, record: Record, group: SubscriptionGroupConfig) -> Placement:
    """A dead letter without added properties, for a message that is too large for more."""
    topic, properties = dead_letter_topic(broker, group.group_name), properties_without_crc(record)
    fields = fields_of(record)
    put = _counted(copy_to(record, topic, 0, fields, properties))
    return _dead(put, fields.get(RETRY_TOPIC, record.topic), put.reconsume_times)


def _dead(put: PutMessage, consumed_from: str, attempts: int) -> Placement:
    return Placement(put, attempts=max(1, attempts), consumed_from=consumed_from)


def _counted(put: PutMessage) -> PutMessage:
    put.reconsume_times += 1
    return put


def _delayed_by(
    broker: Broker, put: PutMessage, fields: dict[str, str], delay_ms: int, now_ms: int
) -> Placement:
    """Delay by a level if one has exactly this delay, otherwise through the timer queue."""
    levels_ms = broker.config.store.delay_levels_ms
    if delay_ms in levels_ms:
        return place_delayed(broker, put, fields, levels_ms.index(delay_ms) + 1, now_ms)
    timed = {TIMER_DELAY_MS: str(delay_ms)}
    # The delay that it asked for when it was sent is over.
    without = (DELAY_LEVEL, TIMER_DELAY_S, TIMER_DELIVER_MS, TIMER_OUT_MS)
    put.properties = with_properties(put.properties, fields, timed, without=without)
    fields = {name: value for name, value in fields.items() if name not in without} | timed
    return place(broker, put, fields, now_ms)


def dead_letter_when_exhausted(
    broker: Broker, put: PutMessage, fields: Mapping[str, str], most_times: int | None
) -> Placement | None:
    """The dead letter for a message that a client itself sends to a retry topic.

    Ordered consumers do so when they give up a message, and concurrent ones when send back failed.
    None if it may be retried. Raises RequestRefused.
    """
    name = put.topic.removeprefix(RETRY_PREFIX)
    group = group_of(broker, name)
    limit = group.retry_max_times if most_times is None else most_times
    is_exhausted = put.reconsume_times > limit
    if not is_exhausted and not _consumes_in_order(broker, name):
        return None
    values = {DELAY_LEVEL: "-1"}
    dead = msgspec.structs.replace(
        put,
        topic=dead_letter_topic(broker, name),
        queue_id=0,
        properties=with_properties(put.properties, fields, values),
    )
    # Java's concurrent consumers have already counted the last attempt, ordered ones have not.
    attempts = put.reconsume_times if is_exhausted else put.reconsume_times + 1
    return _dead(dead, fields.get(RETRY_TOPIC, put.topic), attempts)


def _consumes_in_order(broker: Broker, group: str) -> bool:
    """Whether a Java or Go member holds a lock on a queue: ordered consumers have already retried
    in place. Python members lock all queues, and give up ordered messages in another way."""
    live = broker.consumers.group(group)
    if live is None:
        return False
    for topic in live.subscriptions:
        config = broker.topics.get(topic)
        for queue_id in range(config.read_queue_nums if config is not None else 0):
            queue = broker.queue(topic, queue_id)
            member = live.find(broker.locks.owner(group, queue) or "")
            if member is not None and member.language != Language.PYTHON.name:
                return True
    return False
