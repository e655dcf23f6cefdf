"""Sending dead letters again: to the group that failed, to their topic, or elsewhere.

    group     to `%RETRY%group`, as a first delivery: only the group that gave up on it gets it
    topic     to the topic it came from, where every group gets it
    NAME      to another topic

Body, tag, keys, properties and unique id stay; the property RESENT counts how often it was sent
again, and it gets its own DEDUP_KEY, so that a de-duplicated topic accepts it. The cluster is asked
whether a dead letter was sent before, so that two operators, and the pipeline, see what the others
did: its unique id is then in a target, stored later than the dead letter. Between this check and
the send, the dead letter's queue is locked, so that two operators do not both send it. The pipeline
takes no locks.

If members hold locks (Java's ordered ones, and on Apache's brokers all of Python's), brokers assume
that a message which a client sends to a retry topic is one that ordered members gave up on, and
make it a dead letter at once. In this case the broker is asked to store the dead letter again
itself, as it does for members that send a message back (36). It is delivered a second later, its
failures still count, and no property is added.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from sparrowmq.admin.brokers import is_sparrow
from sparrowmq.admin.cluster_calls import ClusterCalls
from sparrowmq.admin.dead_letters import origin_of
from sparrowmq.admin.errors import AdminError, NotFound
from sparrowmq.admin.members import connected
from sparrowmq.admin.messages import find_unique, viewed
from sparrowmq.admin.resend_locks import locked
from sparrowmq.client.argument_checks import MAX_INT, check_time
from sparrowmq.client.route_table import publish_queues
from sparrowmq.clock import utc_text
from sparrowmq.protocol import properties as names
from sparrowmq.protocol.dedup import DEDUP_KEY
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.headers.send import SendBack, SendMessageV2, SpecialMessageSent
from sparrowmq.protocol.ids import OffsetId
from sparrowmq.protocol.java import java_hash
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import (
    AUTO_CREATE_TOPIC,
    INNER_PRODUCER_GROUP,
    check_group,
    check_topic,
    retry_topic,
    send_fault,
)
from sparrowmq.protocol.sys_flag import COMPRESSED, COMPRESSION_MASK

TO_GROUP = "group"
TO_TOPIC = "topic"

RESENT = "RESENT"
"""Property: how often a dead letter was sent again."""

_DROPPED = frozenset(
    {
        *(names.DELAY_LEVEL, names.REAL_TOPIC, names.REAL_QUEUE_ID, names.RETRY_TOPIC),
        *(names.TRANSACTION_PREPARED, names.TRANSACTION_PREPARED_QUEUE_OFFSET),
        *(names.RECONSUME_TIME, names.MAX_RECONSUME_TIMES, names.CONSUME_START_TIME),
        *(names.MIN_OFFSET, names.MAX_OFFSET, names.POP_CK, names.POP_CK_OFFSET),
        *(names.FIRST_POP_TIME, names.CLUSTER, names.CRC32, names.DLQ_ORIGIN_TOPIC),
        *(names.DLQ_ORIGIN_MESSAGE_ID, names.WAIT_STORE_OK),
    }
)
"""What brokers recorded about earlier deliveries; delays would hold the message back again."""

_TIMER_PREFIX = "TIMER_"
_LOOKS = 20
_LOOK_S = 0.05


class Resend(Enum):
    """What happened to a dead letter."""

    SENT = "sent"
    SENT_BEFORE = "sent before"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resent:
    """One dead letter that was to be sent again."""

    message_id: str
    place: str
    """`broker/queue/offset` of the dead letter."""
    died: datetime
    target: str | None
    """The target topic; None if it is not known."""
    result: Resend
    reason: str = ""
    """When and where it was sent before, or why it was refused."""


def resends_of(message: MessageExt) -> int:
    """How often a dead letter was sent again."""
    text = message.properties.get(RESENT, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


async def resend(
    cluster: ClusterCalls,
    group: str,
    letters: AsyncIterable[MessageExt],
    *,
    to: str,
    rate: float | None,
    dry_run: bool,
) -> AsyncIterator[Resent]:
    """Send dead letters again, one after the other, and yield what happened to each. In a dry run
    nothing is sent, and `sent` means that it would be. Raises ValueError, NotFound."""
    check_group(group)
    if to not in (TO_GROUP, TO_TOPIC):
        fault = send_fault(check_topic(to))
        if fault is not None:
            raise ValueError(fault)
        await cluster.route(to)
    if rate is not None:
        check_time("rate", rate)
    async for letter in letters:
        done = await _resend_one(cluster, group, letter, to, dry_run)
        yield done
        if rate is not None and not dry_run and done.result is Resend.SENT:
            await asyncio.sleep(1 / rate)


async def resend_all(
    cluster: ClusterCalls,
    group: str,
    letters: AsyncIterable[MessageExt],
    *,
    to: str,
    rate: float | None,
    dry_run: bool,
    on_result: Callable[[Resent], None] | None,
) -> list[Resent]:
    """Like `resend`, but returns a list; `on_result` is called for each when it is done."""
    done = []
    async for each in resend(cluster, group, letters, to=to, rate=rate, dry_run=dry_run):
        done.append(each)
        if on_result is not None:
            on_result(each)
    return done


async def _resend_one(
    cluster: ClusterCalls, group: str, letter: MessageExt, to: str, dry_run: bool
) -> Resent:
    target = target_of(group, letter, to)

    def result(kind: Resend, reason: str = "") -> Resent:
        return Resent(
            message_id=letter.msg_id,
            place=letter.place,
            died=letter.stored_at,
            target=target,
            result=kind,
            reason=reason,
        )

    if target is None:
        hint = "it does not say which topic it came from; name one with --to"
        return result(Resend.REFUSED, hint)
    try:
        async with nullcontext() if dry_run else locked(cluster, letter):
            earlier = await sent_before(cluster, group, letter, to)
            if earlier is not None:
                return result(Resend.SENT_BEFORE, _where(earlier))
            if not dry_run:
                await _send_to(cluster, group, letter, target, to)
    except AdminError as error:
        return result(Resend.REFUSED, str(error))
    except ProtocolError as error:
        unknown = f"an answer cannot be read, so it is not known whether it was sent: {error}"
        return result(Resend.REFUSED, unknown)
    return result(Resend.SENT)


def _where(earlier: MessageExt) -> str:
    return f"to {earlier.topic} at {utc_text(earlier.stored_at.replace(microsecond=0))}"


def target_of(group: str, letter: MessageExt, to: str) -> str | None:
    """The topic that a dead letter goes to; None if it does not name its own."""
    if to == TO_GROUP:
        return retry_topic(group) if origin_of(letter) else None
    return origin_of(letter) if to == TO_TOPIC else to


async def sent_before(
    cluster: ClusterCalls, group: str, letter: MessageExt, to: str
) -> MessageExt | None:
    """The latest copy of a dead letter that was sent again.

    The group's retry topic and the original topic both count, since the group gets it either way.
    """
    topics = {to}
    if to in (TO_GROUP, TO_TOPIC):
        topics = {retry_topic(group), origin_of(letter) or ""} - {""}
    copies: list[MessageExt] = []
    for topic in sorted(topics):
        try:
            copies += await find_unique(cluster, topic, letter.msg_id, letter.store_timestamp)
        except NotFound:
            continue
    later = [each for each in copies if is_later(each, letter)]
    return max(later, key=lambda each: each.store_timestamp, default=None)


def is_later(copy: MessageExt, letter: MessageExt) -> bool:
    """Whether a copy of a message was stored after its dead letter, so that it was sent again."""
    if resends_of(copy) > resends_of(letter):
        return True
    return copy.store_timestamp > letter.store_timestamp


def _kept(letter: MessageExt, to: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in letter.properties.items()
        if name not in _DROPPED and not name.startswith(_TIMER_PREFIX)
    }
    kept.setdefault(names.UNIQUE_KEY, letter.msg_id)  # of very old clients' messages
    kept[RESENT] = str(resends_of(letter) + 1)
    if to != TO_GROUP:
        # A de-duplicated topic may still know the message; retry topics never do.
        kept[DEDUP_KEY] = f"resend {letter.place} {kept[RESENT]}"
    origin = origin_of(letter)
    if to == TO_GROUP and origin is not None:
        kept[names.RETRY_TOPIC] = origin
    return kept


async def _send_to(
    cluster: ClusterCalls, group: str, letter: MessageExt, target: str, to: str
) -> None:
    place = await _place(cluster, target, letter)
    address = place[1]
    if to == TO_GROUP and await _may_be_locked(cluster, group, address):
        await _send_back(cluster, group, letter, address)
        return
    sent = await _send(cluster, letter, place, _kept(letter, to))
    if to == TO_GROUP:
        stored = await viewed(cluster, letter.broker_name, address, sent.log_offset)
        if stored is not None and stored.topic == letter.topic:
            await _send_back(cluster, group, letter, address)
            return
    await _until_seen(cluster, group, letter, to)


async def _until_seen(cluster: ClusterCalls, group: str, letter: MessageExt, to: str) -> None:
    """Wait until the copy can be found: Apache's brokers index a message a moment after they have
    confirmed it."""
    for _ in range(_LOOKS):
        with suppress(AdminError):  # it is sent, whatever fails now
            if await sent_before(cluster, group, letter, to) is not None:
                return
        await asyncio.sleep(_LOOK_S)


async def _may_be_locked(cluster: ClusterCalls, group: str, address: str) -> bool:
    """Whether one of Apache's brokers has live members of the group."""
    if await is_sparrow(cluster, address):
        return False
    return bool((await connected(cluster, group)).members)


async def _send_back(cluster: ClusterCalls, group: str, letter: MessageExt, address: str) -> None:
    header = SendBack(
        offset=letter.log_offset,
        group=group,
        delay_level=1,
        origin_msg_id=letter.msg_id,
        origin_topic=letter.topic,
        max_reconsume_times=MAX_INT,
    )
    await cluster.call(address, header)


async def _place(cluster: ClusterCalls, target: str, letter: MessageExt) -> tuple[str, str, int]:
    """Topic, address and queue to send to. The broker that has the dead letter creates the retry
    topic."""
    if target.startswith(retry_topic("")):
        masters = await cluster.masters(brokers=[letter.broker_name])
        return target, masters[letter.broker_name], 0
    route = await cluster.route(target)
    queues = publish_queues(target, route)
    if not queues:
        raise AdminError(f"topic {target} has no queue that can be written now")
    queue = _queue_for(letter, queues)
    by_name = {each.broker_name: each.master_addr for each in route.broker_datas}
    address = by_name.get(queue.broker_name)
    if address is None:
        raise AdminError(f"broker {queue.broker_name} has no master now")
    return target, address, queue.queue_id


def _queue_for(letter: MessageExt, queues: list[MessageQueue]) -> MessageQueue:
    key = letter.sharding_key
    number = letter.queue_offset if key is None else abs(java_hash(key))
    return queues[number % len(queues)]


async def _send(
    cluster: ClusterCalls,
    letter: MessageExt,
    place: tuple[str, str, int],
    kept: dict[str, str],
) -> OffsetId:
    topic, address, queue_id = place
    header = SendMessageV2(
        producer_group=INNER_PRODUCER_GROUP,  # of RocketMQ's own tools
        topic=topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=1,
        queue_id=queue_id,
        sys_flag=letter.sys_flag & (COMPRESSED | COMPRESSION_MASK),
        born_timestamp=letter.born_timestamp,
        flag=letter.flag,
        # Release 4.9 makes a message that has failed as often as its group allows a dead letter at
        # once, and a group may allow no failure at all
        max_reconsume_times=MAX_INT,
        properties=names.format_properties(kept),
    )
    response = await cluster.call(address, header, letter.record.body)
    # Release 4.9 answers without the transaction id
    return OffsetId.parse(response.header(SpecialMessageSent).msg_id)
