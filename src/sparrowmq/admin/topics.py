"""Topics: their contents and their settings on brokers; creating, changing and deleting them."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from sparrowmq.admin.cluster_calls import Answers, ClusterCalls, addresses_of, partly_done, without
from sparrowmq.admin.errors import (
    AdminError,
    AlreadyExists,
    BrokerRefusal,
    NoBrokerAnswers,
    NotFound,
    PartlyDone,
    shown,
)
from sparrowmq.admin.values import BrokerFailure, Setting, SettingChange, time_of
from sparrowmq.admin.wanted_settings import Attributes, WantedSettings
from sparrowmq.client.argument_checks import check_flags, check_names, check_whole
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.nameserver import (
    DeleteTopicRoute,
    GetAllTopics,
    GetTopicsByCluster,
)
from sparrowmq.protocol.headers.statistics import GetTopicStats
from sparrowmq.protocol.headers.topics import (
    CreateTopic,
    DeleteTopic,
    GetAllTopicConfig,
    GetTopicConfig,
)
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import AUTO_CREATE_TOPIC, check_topic
from sparrowmq.protocol.offsets_body import TopicStats
from sparrowmq.protocol.perm import (
    PERM_READ_WRITE,
    PERM_WRITE,
    is_valid_perm,
    is_writable,
    perm_text,
)
from sparrowmq.protocol.route import TopicList
from sparrowmq.protocol.topic_config import RegisteredTopics, TopicConfig

_ROUTE_LOOKS = 60
_ROUTE_LOOK_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The settings of a topic on one broker."""

    broker: str
    read_queues: int
    write_queues: int
    perm: int
    """A sum of 4 read, 2 write, 1 inherit."""
    order: bool
    attributes: Mapping[str, str]

    @property
    def permission(self) -> str:
        """`RW-`, as Apache's tools print it."""
        return perm_text(self.perm)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicQueue:
    """What one queue holds."""

    queue: MessageQueue
    min_offset: int
    """The offset of the oldest message."""
    max_offset: int
    """The offset that the next message gets."""
    last_stored: datetime | None
    """When its newest message was stored; None for an empty queue."""

    @property
    def messages(self) -> int:
        """How many messages the queue has."""
        return self.max_offset - self.min_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """A topic on the brokers that answered; the others are in `errors`."""

    name: str
    settings: tuple[TopicSettings, ...]
    queues: tuple[TopicQueue, ...]
    stored_per_s: float
    """Messages per second in the last minute."""
    errors: tuple[BrokerFailure, ...] = ()

    @property
    def messages(self) -> int:
        """How many messages all queues have."""
        return sum(queue.messages for queue in self.queues)

    @property
    def last_stored(self) -> datetime | None:
        """When the topic's newest message was stored."""
        return max((queue.last_stored for queue in self.queues if queue.last_stored), default=None)


# ---- looking


async def topic_names(cluster: ClusterCalls, of: str | None = None) -> list[str]:
    """Names of all topics that any broker registered, or brokers of one cluster. Raises
    NotFound."""
    if of is not None:
        known = (await cluster.info()).cluster_addr_table
        if of not in known:
            raise NotFound("cluster", of, f"known are: {shown(known)}")
    header = GetAllTopics() if of is None else GetTopicsByCluster(cluster=of)
    return sorted((await cluster.ask_name_server(header, TopicList)).topic_list)


async def describe_topic(cluster: ClusterCalls, name: str) -> TopicInfo:
    """Settings and queues on every broker that has the topic. Raises NotFound."""
    route = await cluster.route(check_topic(name))

    async def ask(broker: str, address: str) -> tuple[TopicSettings, TopicStats] | None:
        try:
            config = await topic_config(cluster, address, name)
            return settings_of(broker, config), await topic_stats(cluster, address, name)
        except BrokerRefusal as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            return None  # it was deleted, and name servers are notified a moment later

    answers = await cluster.ask_each(addresses_of(route.broker_datas), ask)
    found = [each for each in answers.by_broker.values() if each is not None]
    if not found:
        if answers.errors:
            raise NoBrokerAnswers(answers.errors)
        raise await cluster.no_topic(name)
    queues = {queue: held for _, stats in found for queue, held in stats.offset_table.items()}
    return TopicInfo(
        name=name,
        settings=tuple(settings for settings, _ in found),
        queues=tuple(
            TopicQueue(
                queue=queue,
                min_offset=held.min_offset,
                max_offset=held.max_offset,
                last_stored=time_of(held.last_update_timestamp),
            )
            for queue, held in sorted(queues.items())
        ),
        stored_per_s=sum(stats.topic_put_tps for _, stats in found),
        errors=answers.errors,
    )


async def topic_config(cluster: ClusterCalls, address: str, topic: str) -> TopicConfig:
    """A topic's settings on a broker. Raises BrokerRefusal with TOPIC_NOT_EXIST."""
    try:
        response = await cluster.call(address, GetTopicConfig(topic=topic))
    except BrokerRefusal as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
    else:
        return TopicConfig.from_json(response.body)
    # Brokers before 5.0 answer with all topics or not at all.
    config = (await all_topic_configs(cluster, address)).get(topic)
    if config is None:
        raise BrokerRefusal(address, ResponseCode.TOPIC_NOT_EXIST, f"it has no topic {topic}")
    return config


async def configs_on(
    cluster: ClusterCalls, topic: str, brokers: Mapping[str, str]
) -> Answers[TopicConfig | None]:
    """A topic's settings on each of these brokers, None where it does not exist."""

    async def ask(_: str, address: str) -> TopicConfig | None:
        try:
            return await topic_config(cluster, address, topic)
        except BrokerRefusal as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            return None

    return await cluster.ask_each(brokers, ask)


async def all_topic_configs(cluster: ClusterCalls, address: str) -> dict[str, TopicConfig]:
    """Every topic that a broker has, with its settings."""
    response = await cluster.call(address, GetAllTopicConfig())
    return RegisteredTopics.from_json(response.body).topic_config_table


async def topic_stats(cluster: ClusterCalls, address: str, topic: str) -> TopicStats:
    """What the queues of a topic on one broker hold."""
    response = await cluster.call(address, GetTopicStats(topic=topic))
    return TopicStats.from_json(response.body)


def settings_of(broker: str, config: TopicConfig) -> TopicSettings:
    """The settings in the form that operators read."""
    return TopicSettings(
        broker=broker,
        read_queues=config.read_queue_nums,
        write_queues=config.write_queue_nums,
        perm=config.perm,
        order=config.order,
        attributes=dict(config.attributes),
    )


# ---- changing


_FIELDS = {
    "read_queues": "read_queue_nums",
    "write_queues": "write_queue_nums",
    "perm": "perm",
    "order": "order",
}
NEW_QUEUES = 8
"""The queues of a topic on each broker, unless its creator says otherwise."""
_DEFAULTS: Mapping[str, Setting] = {
    "read_queues": NEW_QUEUES,
    "write_queues": NEW_QUEUES,
    "perm": PERM_READ_WRITE,
    "order": False,
}


def wanted_topic(
    *,
    queues: int | None,
    read_queues: int | None,
    write_queues: int | None,
    perm: int | None,
    order: bool | None,
    attributes: Attributes | None,
) -> WantedSettings:
    """Settings to give to a topic; None leaves one as it is. `queues` applies to reading and
    writing unless those are given. Raises ValueError."""
    if queues is not None:
        check_whole("queues", queues, 1)
    sides = {
        "read_queues": queues if read_queues is None else read_queues,
        "write_queues": queues if write_queues is None else write_queues,
    }
    for name, number in sides.items():
        if number is not None:
            check_whole(name, number, 0)
    if order is not None:
        check_flags(order=order)
    if perm is not None:
        check_whole("perm", perm, 0)
        if not is_valid_perm(perm):
            raise ValueError(f"perm is {perm}, must be a sum of 4 read, 2 write, 1 inherit")
    return WantedSettings(_FIELDS, {**sides, "perm": perm, "order": order}, attributes)


def _request(wanted: WantedSettings, config: TopicConfig) -> CreateTopic:
    return change_request(wanted.applied(config))


def create_request(config: TopicConfig) -> CreateTopic:
    """The request that gives a broker a topic it does not have, with all its settings."""
    signed = {f"+{name}": value for name, value in config.attributes.items()}
    return change_request(msgspec.structs.replace(config, attributes=signed))


def changed_request(config: TopicConfig) -> CreateTopic:
    """The request that changes a topic's settings on a broker but not its attributes."""
    return change_request(msgspec.structs.replace(config, attributes={}))


def change_request(new: TopicConfig) -> CreateTopic:
    """The request that gives a topic these settings; attributes are changes, with their signs."""
    signed = [
        name if name.startswith("-") else f"{name}={value}"
        for name, value in new.attributes.items()
    ]
    return CreateTopic(
        topic=new.topic_name,
        default_topic=AUTO_CREATE_TOPIC,
        read_queue_nums=new.read_queue_nums,
        write_queue_nums=new.write_queue_nums,
        perm=new.perm,
        topic_filter_type=new.topic_filter_type.value,
        topic_sys_flag=new.topic_sys_flag,
        order=new.order,
        attributes=",".join(signed) or None,
    )


def check_new(topic: str, wanted: WantedSettings) -> None:
    """Raises ValueError for a name or settings that no topic can have."""
    check_topic(topic)
    for name in ("read_queues", "write_queues"):
        if wanted.values[name] is not None:
            check_whole(name, wanted.values[name], 1)
    wanted.check_new("topic")


async def create_topic(
    cluster: ClusterCalls,
    topic: str,
    wanted: WantedSettings,
    *,
    brokers: Sequence[str],
    of: str | None,
    replace: bool,
    dry_run: bool,
) -> list[str]:
    """Create a topic on the brokers named, those of a cluster, or all, or replace its settings
    there. Returns when the name servers know it. Raises AlreadyExists where it differs in what is
    given and `replace` is False."""
    targets, away = await cluster.changeable(brokers=brokers, cluster=of)
    present: Mapping[str, TopicConfig] = {}
    if not replace:
        present, unreached = await _same_configs(cluster, topic, wanted, targets)
        away += unreached
    targets = without(targets, away)
    if dry_run:
        return list(targets)
    new = _request(wanted.with_defaults(_DEFAULTS), TopicConfig(topic_name=topic))
    requests = {
        name: _request(wanted, present[name]) if name in present else new for name in targets
    }
    done = await cluster.change_each(
        f"topic {topic} is set", targets, lambda name: (requests[name], b""), away=away
    )
    await until_routed(cluster, requests, done)
    return done


async def _same_configs(
    cluster: ClusterCalls, topic: str, wanted: WantedSettings, targets: Mapping[str, str]
) -> tuple[dict[str, TopicConfig], Sequence[BrokerFailure]]:
    """How the brokers that have a topic have it, and those that cannot be reached. Raises
    AlreadyExists where one differs from what is wanted."""
    answers = await configs_on(cluster, topic, targets)
    found, away = answers.reached()
    present = {name: config for name, config in found.items() if config is not None}
    changes = [each for name in present for each in wanted.changes(present[name], name)]
    if changes:
        raise AlreadyExists("topic", topic, map(str, changes))
    return present, away


async def update_topic(
    cluster: ClusterCalls,
    topic: str,
    wanted: WantedSettings,
    *,
    brokers: Sequence[str],
    of: str | None = None,
    dry_run: bool,
) -> list[SettingChange]:
    """Change a topic on the brokers that have it: on those that are named, those of a cluster, or
    all. Nothing is changed unless all reachable ones answer."""
    check_names("brokers", brokers)
    route = await cluster.route(check_topic(topic))
    having = {data.broker_name: data.cluster for data in route.broker_datas}
    chosen = _chosen(topic, having, brokers, of)
    targets, without_master = await cluster.changeable(brokers=chosen)
    answers = await cluster.ask_each(
        targets, lambda _, address: topic_config(cluster, address, topic)
    )
    configs, unreached = answers.reached()
    away = [*without_master, *unreached]
    what = f"topic {topic} is changed"
    changes = [each for name in configs for each in wanted.changes(configs[name], name)]
    if not (dry_run or changes) and away:
        raise partly_done(what, list(configs), away)
    if dry_run or not changes:
        return changes
    concerned = {name: targets[name] for name in {change.broker for change in changes}}
    requests = {name: _request(wanted, configs[name]) for name in sorted(concerned)}
    done = await cluster.change_each(what, concerned, lambda name: (requests[name], b""), away=away)
    await until_routed(cluster, requests, done)
    return changes


def _chosen(
    topic: str, having: Mapping[str, str], brokers: Sequence[str], of: str | None
) -> list[str]:
    """Of the brokers that have a topic, each with its cluster, those that are named, those of a
    cluster, or all. Raises NotFound."""
    for name in brokers:
        if name not in having:
            raise NotFound("broker", name, f"topic {topic} is on: {', '.join(sorted(having))}")
    if brokers or of is None:
        return sorted(brokers or having)
    chosen = sorted(name for name, its_cluster in having.items() if its_cluster == of)
    if not chosen:
        known = ", ".join(sorted(set(having.values())))
        raise NotFound("topic", f"{topic} in cluster {of}", f"it is in: {known}")
    return chosen


async def until_routed(
    cluster: ClusterCalls, requests: Mapping[str, CreateTopic], brokers: Iterable[str]
) -> None:
    """Brokers register a change with the name servers on their own; wait until it is there. Raises
    AdminError."""
    topic = next(iter(requests.values())).topic
    wanted = {name: _queue_numbers(requests[name]) for name in brokers}
    for _ in range(_ROUTE_LOOKS):
        route = await cluster.find_route(topic)
        known = {
            data.broker_name: (data.read_queue_nums, data.write_queue_nums, data.perm)
            for data in (route.queue_datas if route else ())
        }
        other = {name for name, numbers in wanted.items() if known.get(name) != numbers}
        # A draining broker is registered without write permission.
        reduced = {name for name in other if known.get(name) == _read_only(wanted[name])}
        if other == reduced and all([await is_hidden(cluster, name) for name in other]):
            return
        await asyncio.sleep(_ROUTE_LOOK_S)
    raise AdminError(
        f"topic {topic} is set on {', '.join(sorted(brokers))}, but the name server does not know"
        " it yet; clients will find it within 30 s"
    )


def _read_only(numbers: tuple[int, int, int]) -> tuple[int, int, int]:
    read, write, perm = numbers
    return read, write, perm & ~PERM_WRITE


async def is_hidden(cluster: ClusterCalls, broker: str) -> bool:
    """Whether name servers show a broker as read-only. Every broker has a topic of its name."""
    route = await cluster.find_route(broker)
    perms = [each.perm for each in route.queue_datas if each.broker_name == broker] if route else []
    return bool(perms) and not any(map(is_writable, perms))


def _queue_numbers(request: CreateTopic) -> tuple[int, int, int]:
    return request.read_queue_nums, request.write_queue_nums, request.perm


async def delete_topic(cluster: ClusterCalls, topic: str, *, missing_ok: bool) -> list[str]:
    """Delete a topic on all brokers and then from the name servers. Nothing is deleted while a
    broker hangs: it would delete the topic when it continues, at an unknown time. A broker that
    cannot be reached keeps the topic, and registers it again when it is back. Raises NotFound
    unless `missing_ok`. An interrupted call can be repeated as long as any server knows the
    topic."""
    check_topic(topic)
    what = f"topic {topic} is deleted"
    targets, away = await cluster.changeable()
    having, unreached = await _having(cluster, topic, targets)
    if not (missing_ok or having or await cluster.find_route(topic) is not None):
        raise await cluster.no_topic(topic)
    away += unreached
    partly: PartlyDone | None = None
    try:
        done = await cluster.change_each(
            what, without(targets, away), lambda _: (DeleteTopic(topic=topic), b""), away=away
        )
    except PartlyDone as error:
        partly, done = error, error.done
    failed = await cluster.change_name_servers(DeleteTopicRoute(topic=topic))
    if partly is not None:
        raise partly
    if failed:
        raise partly_done(what, done, failed)
    return done


async def _having(
    cluster: ClusterCalls, topic: str, targets: Mapping[str, str]
) -> tuple[bool, Sequence[BrokerFailure]]:
    """Whether any broker has a topic, and the brokers that cannot be reached. Raises AdminError if
    a reachable one does not answer."""

    async def ask(_: str, address: str) -> bool:
        try:
            await topic_config(cluster, address, topic)
        except BrokerRefusal as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            return False
        return True

    found, away = (await cluster.ask_each(targets, ask)).reached()
    return any(found.values()), away
