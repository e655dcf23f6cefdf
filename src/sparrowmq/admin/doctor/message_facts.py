"""Asks about one message: the places where it may be, and the groups that read its topic.

its topic ─ found ─▶ each group: progress, filter, retry topic, dead letters
   └─ not there ─▶ delayed? half message? expired?
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from sparrowmq.admin.brokers import broker_config, runtime_table
from sparrowmq.admin.cluster_calls import ClusterCalls, addresses_of, at_once
from sparrowmq.admin.doctor.facts import MessageFacts, MessageReader
from sparrowmq.admin.doctor.findings import NotMade
from sparrowmq.admin.errors import AdminError, BrokerRefusal, NotFound, failure_of
from sparrowmq.admin.lag import committed
from sparrowmq.admin.members import connected
from sparrowmq.admin.messages import message_at, read_messages
from sparrowmq.admin.resends import is_later, resends_of
from sparrowmq.admin.topics import describe_topic, topic_stats
from sparrowmq.admin.values import EARLIEST_MS, LATEST_MS
from sparrowmq.client.argument_checks import check_kind
from sparrowmq.client.errors import counted
from sparrowmq.net.peers import split_address
from sparrowmq.protocol.body import GroupList
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.delay import RETRY_DELAYS_MS, parse_delay_levels
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.headers.connections import GetConsumersOfTopic
from sparrowmq.protocol.headers.messages import QueryMessage
from sparrowmq.protocol.ids import OffsetId, UniqueId
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt, decode_messages
from sparrowmq.protocol.names import (
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    check_topic,
    dlq_topic,
    is_system_group,
    retry_topic,
)
from sparrowmq.protocol.properties import REAL_TOPIC, TIMER_OUT_MS

DELAYED_IN = (SCHEDULE_TOPIC, TIMER_TOPIC)
"""Where messages wait: retries, too, in the second by a policy of their group's own."""
MOST_READERS = 50
_MOST_FOUND = 64
_MOST_OPERATIONS = 1000
_HOUR_MS = 3_600_000
_WAITING = ("still-delayed", "half-open", "rolled-back")
_READERS = (*("filtered-for-group", "waiting-behind", "retrying", "dead", "consumed-by"),)


@dataclass(frozen=True, slots=True)
class Places:
    """Where to look: all brokers, and their tables of delay levels."""

    calls: ClusterCalls
    addresses: Mapping[str, str]
    levels_ms: Mapping[str, tuple[int, ...]]

    async def copies(self, topic: str, unique_id: str) -> list[MessageExt]:
        """All messages in a topic with that id, oldest first. A broker that does not answer counts
        as having none: the search in the message's own topic reports it."""
        asks = [
            partial(_query, self.calls, name, address, topic, unique_id)
            for name, address in self.addresses.items()
        ]
        found = [
            each
            for answer in await at_once(asks)
            if not isinstance(answer, AdminError)
            for each in answer
        ]
        return sorted(found, key=lambda each: (each.store_timestamp, each.queue_offset))

    def due_ms(self, waiting: MessageExt) -> int:
        """When a delayed message is delivered."""
        timed = waiting.properties.get(TIMER_OUT_MS, "")
        if waiting.topic == TIMER_TOPIC and timed.isdecimal():
            return int(timed)
        levels_ms = self.levels_ms.get(waiting.broker_name, RETRY_DELAYS_MS)
        level = min(max(1, waiting.queue_id + 1), len(levels_ms))
        return waiting.store_timestamp + levels_ms[level - 1]


async def look_at_message(calls: ClusterCalls, message_id: str, topic: str | None) -> MessageFacts:
    """Everything about a message. Raises ValueError for an invalid id, and NotFound for an id that
    needs its topic."""
    check_kind("message_id", message_id, str)
    try:
        place = OffsetId.parse(message_id)
    except BodyError:
        raise ValueError(f"message id {message_id!r} is not 32 or 56 hexadecimal digits") from None
    if topic is None:
        return await _by_place(calls, message_id, place)
    now_ms = calls.client.clock()
    facts = MessageFacts(id=message_id, topic=check_topic(topic), now_ms=now_ms)
    where = await everywhere(calls)
    facts, copies = await _in_topic(where, facts)
    if copies:
        return await _with_readers(where, replace(facts, stored=copies[0]))
    there = await message_at(calls, place)
    if there is not None and there.offset_msg_id == message_id.upper():
        return await _with_readers(where, replace(facts, stored=there))
    facts = await _with_waiting(where, facts)
    if facts.waiting is None and facts.half is None:
        facts = replace(facts, expired=await _expired(where, facts, place))
    return facts


async def _by_place(calls: ClusterCalls, message_id: str, place: OffsetId) -> MessageFacts:
    found = await message_at(calls, place)
    if found is None or found.offset_msg_id != message_id.upper():
        where = await everywhere(calls)
        facts = MessageFacts(id=message_id, topic="?", now_ms=calls.client.clock())
        expired = await _expired(where, facts, place)
        if expired:
            return replace(facts, expired=expired)
        hint = "give its topic, if this is the unique id that send() returned"
        raise NotFound("message", message_id, hint)
    return await look_at_message(calls, found.msg_id, found.original_topic)


async def everywhere(calls: ClusterCalls) -> Places:
    """All brokers, and what they say of their delays."""
    addresses = await calls.readable()
    answers = await at_once([partial(broker_config, calls, each) for each in addresses.values()])
    levels = {}
    for name, answer in zip(addresses, answers, strict=True):
        text = "" if isinstance(answer, AdminError) else answer.get("messageDelayLevel", "")
        try:
            levels[name] = parse_delay_levels(text)
        except ValueError:
            levels[name] = RETRY_DELAYS_MS
    return Places(calls, addresses, levels)


async def _query(
    calls: ClusterCalls, broker: str, address: str, topic: str, unique_id: str
) -> list[MessageExt]:
    header = QueryMessage(
        topic=topic,
        key=unique_id,
        max_num=_MOST_FOUND,
        begin_timestamp=EARLIEST_MS,
        end_timestamp=LATEST_MS,
        is_unique="true",
    )
    try:
        response = await calls.call(address, header)
    except BrokerRefusal as error:
        if error.code != ResponseCode.QUERY_NOT_FOUND:
            raise
        return []
    found = decode_messages(response.body, broker)
    return [each for each in found if each.topic == topic and each.msg_id == unique_id]


async def _in_topic(where: Places, facts: MessageFacts) -> tuple[MessageFacts, list[MessageExt]]:
    """The copies in its own topic; brokers that did not answer make the rest uncertain."""
    asks = [
        partial(_query, where.calls, name, address, facts.topic, facts.id)
        for name, address in where.addresses.items()
    ]
    errors, missing, found = [], [], []
    for (name, address), answer in zip(where.addresses.items(), await at_once(asks), strict=True):
        if isinstance(answer, AdminError):
            errors.append(failure_of(name, address, answer))
            ids = ("not-found", "expired", *_WAITING)
            reason = str(answer) if errors[-1].is_refusal else "it did not answer"
            missing.append(NotMade(ids, f"broker {name}", reason))
        else:
            found += answer
    found.sort(key=lambda each: each.store_timestamp)
    asked = len(where.addresses) - len(errors)
    return replace(facts, asked=asked, errors=tuple(errors), missing=tuple(missing)), found


# ---- not in its topic


async def _with_waiting(where: Places, facts: MessageFacts) -> MessageFacts:
    for topic in DELAYED_IN:
        copies = [
            each for each in await where.copies(topic, facts.id) if _is_for(each, facts.topic)
        ]
        if copies:
            return replace(facts, waiting=copies[-1], due_ms=where.due_ms(copies[-1]))
    halves = [
        each
        for each in await where.copies(TRANS_HALF_TOPIC, facts.id)
        if _is_for(each, facts.topic)
    ]
    if not halves:
        return facts
    aside = await where.copies(TRANS_CHECK_MAX_TIME_TOPIC, facts.id)
    ended = await _has_ended(where, halves[-1])
    return replace(facts, half=halves[-1], half_ended=ended, is_set_aside=bool(aside))


def _is_for(message: MessageExt, topic: str) -> bool:
    return message.properties.get(REAL_TOPIC) == topic


async def _has_ended(where: Places, half: MessageExt) -> bool | None:
    """Whether an operation names it: the newest operations of its broker are read."""
    address = where.addresses.get(half.broker_name, "")
    (stats,) = await at_once([partial(topic_stats, where.calls, address, TRANS_OP_HALF_TOPIC)])
    if isinstance(stats, AdminError):
        return None
    queue = MessageQueue(TRANS_OP_HALF_TOPIC, half.broker_name, half.queue_id)
    held = stats.offset_table.get(queue)
    at = 0 if held is None else max(held.min_offset, held.max_offset - _MOST_OPERATIONS)
    while held is not None and at < held.max_offset:
        (part,) = await at_once([partial(read_messages, where.calls, queue, at, limit=32)])
        if isinstance(part, AdminError) or not part:
            return None
        if any(str(half.queue_offset) in _offsets(each) for each in part):
            return True
        at = part[-1].queue_offset + 1
    return False


def _offsets(operation: MessageExt) -> list[str]:
    return operation.body.decode("ascii", "replace").split(",")


async def _expired(where: Places, facts: MessageFacts, place: OffsetId) -> str:
    """Why the message must have been there: its place is before the first one that the broker of an
    offset id still has, or its unique id is older than everything in its topic."""
    for name, address in where.addresses.items():
        if split_address(address) == place.store_host:
            (table,) = await at_once([partial(runtime_table, where.calls, address)])
            first = "" if isinstance(table, AdminError) else table.get("commitLogMinOffset", "")
            if first.isdecimal() and place.log_offset < int(first):
                return (
                    f"it lay at {place.log_offset:,} of the log of {name}, which begins at"
                    f" {int(first):,} now"
                )
            return ""
    return await _older_than_topic(where, facts)


async def _older_than_topic(where: Places, facts: MessageFacts) -> str:
    try:
        born_ms = UniqueId.parse(facts.id).near_time_ms(facts.now_ms)
        described = await describe_topic(where.calls, facts.topic)
    except (BodyError, AdminError, ValueError):
        return ""
    gone = [each for each in described.queues if each.min_offset > 0]
    asks = [partial(read_messages, where.calls, e.queue, e.min_offset, limit=1) for e in gone]
    firsts = [
        answer[0].store_timestamp
        for answer in await at_once(asks[:MOST_READERS])
        if not isinstance(answer, AdminError) and len(answer)
    ]
    if not gone or (firsts and born_ms >= min(firsts)):
        return ""
    age = f"{(facts.now_ms - born_ms) / _HOUR_MS:,.1f} h ago"
    return (
        f"its id was made {age}; topic {facts.topic} begins later in {counted(len(gone), 'queue')}"
    )


# ---- groups


async def _with_readers(where: Places, facts: MessageFacts) -> MessageFacts:
    async def ask(_: str, address: str) -> Iterable[str]:
        response = await where.calls.call(address, GetConsumersOfTopic(topic=facts.topic))
        return GroupList.from_json(response.body).group_list

    stored = facts.stored
    assert stored is not None
    route = await where.calls.find_route(facts.topic)
    addresses = addresses_of(route.broker_datas) if route else {}
    answers = await at_once([partial(ask, name, at) for name, at in addresses.items()])
    names: set[str] = set()
    for answer in answers:
        if not isinstance(answer, AdminError):
            names |= {each for each in answer if not is_system_group(each)}
    chosen = sorted(names)[:MOST_READERS]
    readers = await at_once([partial(reader_of, where, stored, name) for name in chosen])
    missing = [
        NotMade(_READERS, f"group {name}", str(answer))
        for name, answer in zip(chosen, readers, strict=True)
        if isinstance(answer, AdminError)
    ]
    if len(names) > MOST_READERS:
        rest = f"{len(names) - MOST_READERS} more groups"
        missing.append(NotMade(_READERS, rest, f"at most {MOST_READERS} are asked"))
    return replace(
        facts,
        readers=tuple(each for each in readers if not isinstance(each, AdminError)),
        missing=(*facts.missing, *missing),
    )


async def reader_of(where: Places, stored: MessageExt, group: str) -> MessageReader:
    """How a group stands to a message, by its progress and the copies of the message."""
    calls = where.calls
    address = where.addresses[stored.broker_name]
    online = await connected(calls, group)
    wanted = {each.topic: each for each in online.subscriptions}
    dead = await where.copies(dlq_topic(group), stored.msg_id)
    reader = MessageReader(
        group=group,
        offset=await committed(calls, address, group, stored.queue),
        subscription=wanted.get(stored.topic),
        dead=dead[-1] if dead else None,
    )
    copies = await where.copies(retry_topic(group), stored.msg_id)
    for topic in DELAYED_IN:
        delayed = await where.copies(topic, stored.msg_id)
        copies += [each for each in delayed if _is_for(each, retry_topic(group))]
    found = [*copies, *dead]
    if reader.dead is not None:
        in_topic = await where.copies(stored.topic, stored.msg_id)
        again = [each for each in (*copies, *in_topic) if is_later(each, reader.dead)]
        found += [each for each in in_topic if resends_of(each) > 0]
        if again:
            copies = again
            first = min(again, key=lambda each: each.store_timestamp)
            reader = replace(reader, resent=first)
    reader = replace(reader, copies=tuple(sorted(found, key=_order)))
    if not copies:
        return reader
    newest = max(copies, key=_newness)
    if newest.topic in DELAYED_IN:
        return replace(reader, retry=newest, retry_due_ms=where.due_ms(newest))
    at = where.addresses.get(newest.broker_name, address)
    read = await committed(calls, at, group, newest.queue)
    is_done = read is not None and read > newest.queue_offset
    return replace(reader, retry=newest, retry_is_done=is_done)


def _order(copy: MessageExt) -> tuple[int, int, int]:
    """Sorts copies by time; those of one millisecond by what the later one counts more."""
    return copy.store_timestamp, resends_of(copy), copy.reconsume_times


def _newness(copy: MessageExt) -> tuple[int, int, bool]:
    """Sorts copies without the clocks of brokers: a resend counts attempts from 0 again."""
    return resends_of(copy), copy.reconsume_times, copy.topic not in DELAYED_IN
