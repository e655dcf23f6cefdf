"""What happened to a message: what clients reported, and how far each group is with it.

Clients that trace write to RMQ_SYS_TRACE_TOPIC: producers what they sent, Java's and Go's consumers
each call of a handler. Groups that do not trace are judged by offsets: a group whose progress in
the message's queue is past it has consumed it, or its filter left it out. One whose handler failed
is retrying while a copy of the message is to come again, also one that was sent again from the
group's dead letters; else it is dead where it lies there. Those copies also say when the message
was retried, died and was sent again, and where the copies are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

from sparrowmq.admin.cluster_calls import ClusterCalls, addresses_of, at_once
from sparrowmq.admin.doctor.facts import MessageReader
from sparrowmq.admin.doctor.message_facts import DELAYED_IN, Places, everywhere, reader_of
from sparrowmq.admin.errors import AdminError, NotAllAnswered, NotFound, TopicAway, failures_of
from sparrowmq.admin.members import connected
from sparrowmq.admin.messages import find_messages, message
from sparrowmq.admin.topic_figures import groups_of_topic
from sparrowmq.admin.values import BrokerFailure, distinct
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import (
    TRACE_TOPIC,
    is_dlq_topic,
    is_retry_topic,
    is_system_group,
)
from sparrowmq.protocol.subscription import TAG
from sparrowmq.protocol.tags import parse_tags
from sparrowmq.protocol.trace import TraceStep, parse_trace

_MOST_TRACES = 64


class GroupState(Enum):
    """How far a group is with a message."""

    CONSUMED = "consumed"
    WAITING = "waiting"
    FILTERED = "filtered"
    OFFLINE = "offline"
    RETRYING = "retrying"
    DEAD = "dead"


class GroupEvent(Enum):
    """What a copy of a message in a topic of the group's own shows."""

    RETRIED = "retried"
    """It came to the group again."""
    DUE = "retry due"
    """It comes again then."""
    DEAD = "dead"
    RESENT = "sent again"
    """From the group's dead letters."""


@dataclass(frozen=True, slots=True)
class GroupStep:
    """Something that happened to a message in one group."""

    event: GroupEvent
    time_ms: int
    copy: MessageExt
    """Where it is seen, with the number of failed attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStanding:
    """How far one group is with a message."""

    group: str
    state: GroupState | None
    """None if that cannot be determined."""
    source: str
    """`trace`; `retries` where a copy is to come again; `dead letters` where it lies there; or
    `offsets` where it follows from the group's progress; empty where there is no state."""
    before: int | None = None
    """How many messages of the queue the group reads before this one."""
    steps: tuple[GroupStep, ...] = ()
    """Retries, death and resends, ordered by time; whether the group traces or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTrace:
    """The history of a message."""

    message_id: str
    message: MessageExt | None
    """None if it was not found: expired, or its topic is not known."""
    steps: tuple[TraceStep, ...]
    """Ordered by time."""
    groups: tuple[GroupStanding, ...]
    errors: tuple[BrokerFailure, ...] = ()


async def trace(cluster: ClusterCalls, message_id: str, topic: str | None) -> MessageTrace:
    """What is known about a message. Raises ValueError, NotFound, and NotAllAnswered if nothing is
    known and not all brokers answered."""
    steps, errors = await _steps(cluster, message_id)
    known_topic = topic or next((each.topic for each in steps if each.topic), None)
    found: MessageExt | None = None
    try:
        found = await message(cluster, message_id, known_topic)
    except TopicAway as error:
        if not steps:
            raise
        errors = distinct((*errors, *failures_of(f"topic {known_topic}", error)))
    except NotAllAnswered as error:
        errors = distinct((*errors, *error.errors))
        if not steps:
            raise NotAllAnswered("message", message_id, errors) from error
    except NotFound as error:
        if not steps and errors:
            raise NotAllAnswered("message", message_id, errors) from error
        if not steps:
            raise NotFound(
                "message", message_id, f"no client traced it, and {str(error).split('; ', 1)[-1]}"
            ) from error
    if found is not None and not steps and found.msg_id != message_id:
        steps, errors = await _steps(cluster, found.msg_id)
    groups: tuple[GroupStanding, ...] = ()
    if found is not None:
        groups, silent = await _standings(cluster, found, steps)
        errors = distinct((*errors, *silent))
    return MessageTrace(
        message_id=message_id, message=found, steps=steps, groups=groups, errors=errors
    )


async def _steps(
    cluster: ClusterCalls, message_id: str
) -> tuple[tuple[TraceStep, ...], tuple[BrokerFailure, ...]]:
    try:
        found = await find_messages(
            cluster, TRACE_TOPIC, message_id, begin=None, end=None, limit=_MOST_TRACES
        )
    except NotFound:
        return (), ()
    except TopicAway as error:
        return (), failures_of(f"topic {TRACE_TOPIC}", error)
    steps = [
        (step.time_ms or each.store_timestamp, step)
        for each in found
        for step in _lines(each)
        if step.msg_id == message_id or step.offset_msg_id == message_id
    ]
    return tuple(step for _, step in sorted(steps, key=lambda pair: pair[0])), found.errors


def _lines(traced: MessageExt) -> list[TraceStep]:
    try:
        return parse_trace(traced.text())
    except BodyError:
        return []


async def _standings(
    cluster: ClusterCalls, found: MessageExt, steps: Sequence[TraceStep]
) -> tuple[tuple[GroupStanding, ...], tuple[BrokerFailure, ...]]:
    """Every group of the message's topic, by name, and brokers that did not name theirs."""
    masters = await cluster.readable()
    address = masters.get(found.broker_name)
    if address is None:
        return (), ()
    # A group reads the whole topic, also on a broker on which it has no progress in it yet
    route = await cluster.find_route(found.topic)
    addresses = {found.broker_name: address}
    addresses |= addresses_of(route.broker_datas) if route else {}
    known = await cluster.ask_each(
        addresses, lambda _, each: groups_of_topic(cluster, each, found.topic)
    )
    names = frozenset[str]().union(*known.by_broker.values())
    where = await everywhere(cluster)
    asked = [name for name in sorted(names) if not is_system_group(name)]
    results = await at_once(
        [partial(_standing, cluster, where, name, found, steps) for name in asked]
    )
    standings, errors = [], list(known.errors)
    for name, result in zip(asked, results, strict=True):
        if isinstance(result, AdminError):
            standings.append(GroupStanding(group=name, state=None, source=""))
            errors += failures_of(f"group {name}", result)
        else:
            standings.append(result)
    return tuple(standings), tuple(errors)


async def _standing(
    cluster: ClusterCalls,
    where: Places,
    group: str,
    found: MessageExt,
    steps: Sequence[TraceStep],
) -> GroupStanding:
    is_traced = _is_traced(group, steps)
    try:
        reader = await reader_of(where, found, group)
    except AdminError:
        if not is_traced:
            raise
        return GroupStanding(group=group, state=GroupState.CONSUMED, source="trace")
    own = tuple(_own_steps(reader))
    if is_traced:
        return GroupStanding(group=group, state=GroupState.CONSUMED, source="trace", steps=own)
    if reader.dead is not None and reader.resent is None:
        return GroupStanding(group=group, state=GroupState.DEAD, source="dead letters", steps=own)
    if reader.retry is not None and not reader.retry_is_done:
        return GroupStanding(group=group, state=GroupState.RETRYING, source="retries", steps=own)
    at, wanted = reader.offset, reader.subscription
    is_past = at is not None and at > found.queue_offset
    before = max(0, found.queue_offset - (at or 0)) if not is_past else None
    if wanted is not None and wanted.kind == TAG and not _takes(wanted.expression, found.tags):
        state = GroupState.FILTERED
    elif is_past:
        state = GroupState.CONSUMED
    else:
        online = wanted is not None or bool((await connected(cluster, group)).members)
        state = GroupState.WAITING if online else GroupState.OFFLINE
    return GroupStanding(group=group, state=state, source="offsets", before=before, steps=own)


def _is_traced(group: str, steps: Sequence[TraceStep]) -> bool:
    """Whether the group's own clients say that a handler succeeded."""
    begun = {each.request_id for each in steps if each.kind == "SubBefore" and each.group == group}
    return any(
        each.kind == "SubAfter" and each.is_ok and each.request_id in begun for each in steps
    )


def _own_steps(reader: MessageReader) -> Iterator[GroupStep]:
    is_dead = False
    for copy in reader.copies:
        if is_dlq_topic(copy.topic):
            event, is_dead = GroupEvent.DEAD, True
        elif copy.topic in DELAYED_IN:
            if copy is reader.retry and reader.retry_due_ms is not None:
                yield GroupStep(GroupEvent.DUE, reader.retry_due_ms, copy)
            continue  # one that has come is in the retry topic as well
        elif is_dead:
            event, is_dead = GroupEvent.RESENT, False
        elif is_retry_topic(copy.topic):
            event = GroupEvent.RETRIED
        else:
            continue  # sent again from another group's dead letters
        yield GroupStep(event, copy.store_timestamp, copy)


def _takes(expression: str, tag: str | None) -> bool:
    tags = parse_tags(expression)
    return not tags or tag in tags
