"""Stored messages: by id, by key, and by queue and offset."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from sparrowmq.admin.cluster_calls import Answers, ClusterCalls, addresses_of, answered
from sparrowmq.admin.errors import BrokerRefusal, NotAllAnswered, NotFound
from sparrowmq.admin.values import EARLIEST_MS, LATEST_MS, BrokerFailure, Listing
from sparrowmq.client.argument_checks import MAX_LONG, check_kind, check_whole, to_ms
from sparrowmq.net.peers import split_address
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.headers.messages import MessagesFound, QueryMessage, ViewMessage
from sparrowmq.protocol.headers.pull import Pulled, PullMessage
from sparrowmq.protocol.ids import OffsetId
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt, decode_messages
from sparrowmq.protocol.names import check_topic
from sparrowmq.protocol.sys_flag import pull_sys_flag

READ_GROUP = "TOOLS_CONSUMER"
"""The group of RocketMQ's own tools. It never commits, so reading leaves no trace."""

MOST_FOUND = 64
"""Brokers return no more messages than this for one key (Apache's 32 unless configured)."""

MOST_READ = 1_000


async def message(cluster: ClusterCalls, message_id: str, topic: str | None) -> MessageExt:
    """The message with a unique id, which needs its topic, or an offset id. Raises NotFound, and
    NotAllAnswered while brokers that did not answer may have it."""
    check_kind("message_id", message_id, str)
    try:
        place = OffsetId.parse(message_id)
    except BodyError:
        raise ValueError(f"message id {message_id!r} is not 32 or 56 hexadecimal digits") from None
    errors: tuple[BrokerFailure, ...] = ()
    if topic is not None:
        found = await _find(cluster, topic, message_id, EARLIEST_MS, LATEST_MS, 1, is_unique=True)
        if found:
            return min(found, key=lambda each: each.store_timestamp)
        errors = found.errors
    at = await message_at(cluster, place)
    if at is not None and message_id.upper() == at.offset_msg_id:
        return at
    if errors:
        raise NotAllAnswered("message", message_id, errors)
    hint = (
        "give its topic, if this is the unique id that send() returned"
        if topic is None
        else f"it is not in topic {topic}: mistyped, never stored, or expired"
    )
    raise NotFound("message", message_id, hint)


async def message_at(cluster: ClusterCalls, place: OffsetId) -> MessageExt | None:
    """The message that an offset id names; None if the id names no registered broker. A unique id
    looks the same, so only registered brokers are asked."""
    info = await cluster.info()
    for data in info.broker_addr_table.values():
        for address in data.broker_addrs.values():
            if split_address(address) == place.store_host:
                ask = partial(viewed, cluster, data.broker_name, address, place.log_offset)
                return await answered(ask)
    return None


async def viewed(
    cluster: ClusterCalls, broker: str, address: str, log_offset: int
) -> MessageExt | None:
    """The message at an offset of a broker's log; None if there is none."""
    try:
        response = await cluster.call(address, ViewMessage(offset=log_offset))
    except BrokerRefusal:
        return None  # Apache's broker has no separate code for "nothing is there"
    return next(iter(decode_messages(response.body, broker)), None)


async def find_messages(
    cluster: ClusterCalls,
    topic: str,
    key: str,
    *,
    begin: datetime | int | None,
    end: datetime | int | None,
    limit: int,
) -> Listing[MessageExt]:
    """Messages with a key that were stored in a time range, newest first."""
    if not key or not key.strip():
        raise ValueError("the key is blank")
    if not 1 <= limit <= MOST_FOUND:
        raise ValueError(f"limit is {limit}, must be 1 to {MOST_FOUND}")
    begin_ms = EARLIEST_MS if begin is None else to_ms("begin", begin)
    end_ms = LATEST_MS if end is None else to_ms("end", end)
    if begin_ms > end_ms:
        raise ValueError(f"begin ({begin}) is later than end ({end})")
    return await _find(cluster, topic, key, begin_ms, end_ms, limit, is_unique=False)


async def _find(
    cluster: ClusterCalls,
    topic: str,
    key: str,
    begin_ms: int,
    end_ms: int,
    limit: int,
    *,
    is_unique: bool,
) -> Listing[MessageExt]:
    route = await cluster.route(check_topic(topic))
    header = QueryMessage(
        topic=topic,
        key=key,
        max_num=MOST_FOUND,
        begin_timestamp=begin_ms,
        end_timestamp=end_ms,
        is_unique="true" if is_unique else None,
    )

    async def ask(broker: str, address: str) -> tuple[list[MessageExt], bool]:
        try:
            response = await cluster.call(address, header)
        except BrokerRefusal as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return [], False
        return decode_messages(response.body, broker), response.header(MessagesFound).cut

    answers = await cluster.ask_each(addresses_of(route.broker_datas), ask)
    candidates = (each for found, _ in answers.by_broker.values() for each in found)
    found = _matching(candidates, topic, key, is_unique=is_unique)
    is_cut = len(found) > limit or any(cut for _, cut in answers.by_broker.values())
    return Listing(tuple(found[:limit]), answers.errors, is_cut)


async def find_unique(
    cluster: ClusterCalls, topic: str, message_id: str, begin_ms: int
) -> tuple[MessageExt, ...]:
    """All messages in a topic with a unique id that were stored at or after a time, newest first.
    Raises NotFound, and AdminError if a broker does not answer, since it may have one."""
    found = await _find(cluster, topic, message_id, begin_ms, LATEST_MS, MOST_FOUND, is_unique=True)
    Answers({}, found.errors).all()
    return found.items


def _matching(
    candidates: Iterable[MessageExt], topic: str, key: str, *, is_unique: bool
) -> list[MessageExt]:
    """The messages that really match, newest first. Brokers look up hashes, and Apache's return all
    messages with the same hash."""
    found = [
        each
        for each in candidates
        if each.topic == topic and (each.msg_id == key if is_unique else key in each.keys)
    ]
    return sorted(found, key=lambda each: each.store_timestamp, reverse=True)


# ---- by place


@dataclass(frozen=True, slots=True)
class MessagePart:
    """A part of a queue, and the offsets that the whole queue has."""

    messages: list[MessageExt]
    min_offset: int
    max_offset: int
    next_offset: int


async def read_messages(
    cluster: ClusterCalls, queue: MessageQueue, offset: int, *, limit: int
) -> Listing[MessageExt]:
    """Messages of a queue from an offset on, in order. Fewer than `limit` do not mean the end:
    brokers also limit an answer by bytes. Raises NotFound."""
    if not 1 <= limit <= MOST_READ:
        raise ValueError(f"limit is {limit}, must be 1 to {MOST_READ}")
    part = await _read(cluster, queue, offset, limit)
    past = part.messages[-1].queue_offset + 1 if part.messages else offset
    return Listing(tuple(part.messages), is_cut=part.max_offset > past)


async def read_message(cluster: ClusterCalls, queue: MessageQueue, offset: int) -> MessageExt:
    """The message at an offset of a queue. Raises NotFound."""
    part = await _read(cluster, queue, offset, 1)
    for found in part.messages:
        if found.queue_offset == offset:
            return found
    is_empty = part.max_offset <= part.min_offset
    held = "is empty" if is_empty else f"has {part.min_offset} to {part.max_offset - 1}"
    text = f"that queue of topic {queue.topic} {held}"
    raise NotFound("message", f"{queue.place}/{offset}", text)


async def _read(cluster: ClusterCalls, queue: MessageQueue, offset: int, limit: int) -> MessagePart:
    check_kind("queue", queue, MessageQueue)
    check_whole("offset", offset, 0, MAX_LONG)
    route = await cluster.route(check_topic(queue.topic))
    addresses = addresses_of(route.broker_datas)
    address = addresses.get(queue.broker_name)
    if address is None:
        hint = f"topic {queue.topic} is on: {', '.join(addresses)}"
        raise NotFound("broker", queue.broker_name, hint)
    return await answered(partial(pull_part, cluster, address, queue, offset, limit))


async def pull_part(
    cluster: ClusterCalls,
    address: str,
    queue: MessageQueue,
    offset: int,
    limit: int,
    *,
    expression: str = "*",
    kind: str = "TAG",
) -> MessagePart:
    """Messages of a queue from an offset on; no group's progress changes. A filter may leave some
    of them out."""
    header = PullMessage(
        consumer_group=READ_GROUP,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=limit,
        sys_flag=pull_sys_flag(commit_offset=False, suspend=False, subscription=True),
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription=expression,
        expression_type=kind,
    )
    response = await cluster.ask(address, header)
    if response.code not in _PULL_CODES:
        raise BrokerRefusal(address, response.code, response.remark)
    held = response.header(Pulled)
    is_found = response.code == ResponseCode.SUCCESS
    found = decode_messages(response.body, queue.broker_name) if is_found else []
    return MessagePart(found, held.min_offset, held.max_offset, held.next_begin_offset)


_PULL_CODES = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
