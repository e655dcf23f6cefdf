"""Putting a topic on more brokers, with its present settings.

Every broker that has the topic gets the same number of queues: the largest number that any of them
has. Messages stay where they are. Keys do not: with more queues, a producer's next message with a
key may go to another queue than the last, so a topic whose order matters is spread only on request.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from sparrowmq.admin.cluster_calls import ClusterCalls
from sparrowmq.admin.drains import ORDER_NAMESPACE, drained_brokers, order_configurations
from sparrowmq.admin.errors import AdminError, shown
from sparrowmq.admin.topics import (
    changed_request,
    configs_on,
    create_request,
    is_hidden,
    until_routed,
)
from sparrowmq.client.argument_checks import check_names
from sparrowmq.protocol.headers.topics import CreateTopic
from sparrowmq.protocol.names import check_topic, is_dlq_topic, is_retry_topic, is_system_topic
from sparrowmq.protocol.topic_config import TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicShare:
    """How many queues of a topic a broker had, and has now."""

    broker: str
    queues_before: int
    """0 if it did not have the topic."""
    queues_after: int


@dataclass(frozen=True, slots=True)
class _Plan:
    """What to do, decided before the first broker is changed."""

    shares: tuple[TopicShare, ...]
    changes: Mapping[str, CreateTopic]
    order: str
    """Why the order of messages may suffer; empty if it cannot."""


async def spread_topic(
    cluster: ClusterCalls,
    topic: str,
    brokers: Sequence[str],
    *,
    accept_disorder: bool,
    dry_run: bool,
) -> list[TopicShare]:
    """Put a topic on these brokers as well. See `Admin.spread_topic`."""
    check_names("brokers", brokers)
    if is_system_topic(check_topic(topic)) or is_retry_topic(topic) or is_dlq_topic(topic):
        raise ValueError(f"topic {topic} belongs to the brokers, which make it where they need it")
    if not brokers:
        raise ValueError("brokers is empty; name those that should have the topic as well")
    await _check_takes_messages(cluster, brokers)
    targets = await cluster.masters(brokers=brokers)
    route = await cluster.route(topic)
    having = {data.broker_name for data in route.queue_datas}
    addresses = targets | await cluster.masters(brokers=sorted(having | set(brokers)))

    known = (await configs_on(cluster, topic, addresses)).all()
    configuration = (await order_configurations(cluster)).get(topic, "")
    plan = plan_spread(topic, known, set(brokers), configuration)
    if plan.order and not accept_disorder:
        raise AdminError(f"nothing was changed: {plan.order}")
    if not dry_run:
        changed = {name: addresses[name] for name in plan.changes}
        done = await cluster.change_each(
            f"topic {topic} is spread", changed, lambda name: (plan.changes[name], b"")
        )
        await until_routed(cluster, plan.changes, done)
    return list(plan.shares)


async def _check_takes_messages(cluster: ClusterCalls, brokers: Sequence[str]) -> None:
    """Raises AdminError for a broker that is draining or drained."""
    left = await drained_brokers(cluster)
    for name in sorted(set(brokers)):
        if name in left or await is_hidden(cluster, name):
            raise AdminError(
                f"nothing was changed: {name} drains and takes no new messages; name another one,"
                f" or take it back first: sparrowmq broker resume {name}"
            )


def plan_spread(
    topic: str, known: Mapping[str, TopicConfig | None], wanted: set[str], configuration: str
) -> _Plan:
    """What changes where, given the topic's settings on the brokers. Raises AdminError."""
    having = {name: config for name, config in known.items() if config is not None}
    sources = {name: each for name, each in having.items() if name not in wanted} or having
    model = max(sources.values(), key=lambda each: each.write_queue_nums)
    _check_alike(topic, model, having, wanted)
    queues = max(1, model.write_queue_nums)
    shares, changes = [], {}
    for name in sorted(having.keys() | wanted):
        config = having.get(name)
        before = 0 if config is None else config.write_queue_nums
        after = max(before, queues)
        shares.append(TopicShare(broker=name, queues_before=before, queues_after=after))
        if config is None:
            new = msgspec.structs.replace(model, read_queue_nums=queues, write_queue_nums=queues)
            changes[name] = create_request(new)
        elif after > before:
            read = max(config.read_queue_nums, after)
            new = msgspec.structs.replace(config, read_queue_nums=read, write_queue_nums=after)
            changes[name] = changed_request(new)
    if not changes:  # with changes left, a spread that stopped half-way is being finished
        raise AdminError(
            f"nothing was changed: topic {topic} is on {shown(wanted)} already; it is on"
            f" {shown(having)}, name brokers that lack it"
        )
    return _Plan(tuple(shares), changes, _disorder(topic, having, configuration))


def _check_alike(
    topic: str, model: TopicConfig, having: Mapping[str, TopicConfig], wanted: set[str]
) -> None:
    """Raises AdminError if brokers have the topic with settings other than those being copied. A
    spread evens out unequal numbers of queues, but not on a broker that was named."""
    for name, config in sorted(having.items()):
        pairs = [
            ("perm", config.perm, model.perm),
            ("order", config.order, model.order),
            ("attributes", config.attributes, model.attributes),
        ]
        if name in wanted:
            pairs.append(("queues", config.write_queue_nums, model.write_queue_nums))
        differences = [f"{field} {own}, not {other}" for field, own, other in pairs if own != other]
        if differences:
            raise AdminError(
                f"nothing was changed: {name} has topic {topic} with other settings than the"
                f" others ({'; '.join(differences)}). Make them equal first: sparrowmq topic update"
                f" {topic} --broker {name} …"
            )


def _disorder(topic: str, having: Mapping[str, TopicConfig], configuration: str) -> str:
    """Why the order of messages may suffer, and what to do; empty if none is promised."""
    advice = (
        "stop its producers, wait until its groups have read everything (sparrowmq group lag GROUP"
        " --wait 10m), spread it with --yes, and start them again"
    )
    if sum(config.write_queue_nums for config in having.values()) == 1:
        return (
            f"topic {topic} has one queue, which keeps all its messages in order; a second one ends"
            f" that. To spread it all the same, {advice}"
        )
    if any(config.order for config in having.values()):
        kept = (
            f" Its order configuration {configuration!r} keeps keys where they are until it is"
            f" changed: sparrowmq nameserver kv set {ORDER_NAMESPACE} {topic} …"
            if configuration
            else ""
        )
        return (
            f"topic {topic} is marked as ordered; with more queues keys move to other ones, and"
            f" overtake what waits in the old ones. To spread it, {advice}.{kept}"
        )
    return ""
