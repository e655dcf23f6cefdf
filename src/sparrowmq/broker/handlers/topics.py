"""Creating, changing, deleting and listing topics."""

from collections.abc import Awaitable

import msgspec

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.handlers.table_changes import (
    apply_attributes,
    check_is_master,
    check_room,
    page_of,
    reply_when_deleted,
)
from sparrowmq.disk.errors import DiskFull
from sparrowmq.net.audit import audit
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.protocol.attributes import (
    TOPIC_ATTRIBUTES,
    AttributeRefused,
    broker_attributes,
    parse_changes,
)
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.dedup import DEDUP_ATTRIBUTE
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.headers.topics import (
    AllTopicConfig,
    CreateTopic,
    CreateTopics,
    DeleteTopic,
    GetAllTopicConfig,
    GetSystemTopicsOfBroker,
    GetTopicConfig,
)
from sparrowmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic, topic_fault
from sparrowmq.protocol.perm import is_valid_perm
from sparrowmq.protocol.route import TopicList
from sparrowmq.protocol.topic_config import (
    RegisteredTopics,
    TopicConfig,
    TopicConfigList,
    TopicFilterType,
)

routes: Routes[Broker] = Routes()


@routes.on(CreateTopic)
def create_topic(broker: Broker, request: Request[CreateTopic]) -> Awaitable[Reply]:
    """Create or change one topic; name servers are notified at once."""
    header = request.header
    config = TopicConfig(
        topic_name=header.topic,
        read_queue_nums=header.read_queue_nums,
        write_queue_nums=header.write_queue_nums,
        perm=header.perm,
        topic_filter_type=TopicFilterType(header.topic_filter_type),
        topic_sys_flag=header.topic_sys_flag or 0,
        order=header.order,
        attributes=_header_changes(header.attributes or ""),
    )
    return _put(broker, request, (config,))


def _header_changes(text: str) -> dict[str, str]:
    try:
        return parse_changes(text)
    except AttributeRefused as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error


@routes.on(CreateTopics)
def create_topics(broker: Broker, request: Request[CreateTopics]) -> Awaitable[Reply]:
    """Create or change several topics: all or none."""
    try:
        wanted = TopicConfigList.from_json(request.body)
    except BodyError as error:
        text = f"the list of topics cannot be read: {error}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text) from error
    return _put(broker, request, wanted.topic_config_list)


def _put(
    broker: Broker,
    request: Request[CreateTopic] | Request[CreateTopics],
    configs: tuple[TopicConfig, ...],
) -> Awaitable[Reply]:
    check_is_master(broker)
    for config in configs:
        _check(broker, config)
    names = {config.topic_name for config in configs}
    check_room(broker.topics, names, "topics", broker.config.max_topics)
    wanted = [_with_attributes(broker, config) for config in configs]
    new = [config for config in wanted if broker.topics.get(config.topic_name) != config]
    if new:
        broker.topics.put(*new)
        broker.traffic.follow(broker, new)
        # One log line for all of them: thousands would take longer than creating the topics.
        audit(request, "set topics %s", msgspec.json.encode(new).decode())
    return broker.saving.reply_when_saved(broker.topics, Reply())


def _check(broker: Broker, config: TopicConfig) -> None:
    fault = topic_fault(config.topic_name)
    most = broker.config.max_queues_per_topic
    if _only_sets_attributes(broker, config):
        return
    if fault is None and _belongs_to_the_broker(broker, config.topic_name):
        name = config.topic_name
        fault = f"topic {name} belongs to the broker and cannot be changed; choose another name"
    if fault is None and not is_valid_perm(config.perm):
        fault = f"perm {config.perm}, allowed are sums of 4 read, 2 write, 1 inherit"
    for side, queues in (("read", config.read_queue_nums), ("write", config.write_queue_nums)):
        if fault is None and not 0 <= queues <= most:
            fault = f"{queues} {side} queues, allowed are 0 to {most}"
    if fault is not None:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)


def _only_sets_attributes(broker: Broker, config: TopicConfig) -> bool:
    """Whether a change to the topic with the broker's name only affects its attributes: those are
    the quotas of producer groups and clients."""
    if config.topic_name != broker.config.broker_name or not config.attributes:
        return False
    known = broker.topics.get(config.topic_name)
    return known is not None and msgspec.structs.replace(
        known, attributes={}
    ) == msgspec.structs.replace(config, attributes={})


def _with_attributes(broker: Broker, config: TopicConfig) -> TopicConfig:
    known = broker.topics.get(config.topic_name)
    current = None if known is None else known.attributes
    whose = f"topic {config.topic_name}"
    allowed = TOPIC_ATTRIBUTES
    if config.topic_name == broker.config.broker_name:
        allowed = broker_attributes(config.attributes)
    attributes = apply_attributes(whose, allowed, current, config.attributes)
    if DEDUP_ATTRIBUTE in attributes and config.topic_name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        text = f"{whose}: retries and dead letters are never de-duplicated; their topic may be"
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, text)
    return msgspec.structs.replace(config, attributes=attributes)


def _belongs_to_the_broker(broker: Broker, topic: str) -> bool:
    own = (broker.config.cluster_name, broker.config.broker_name)
    return topic in own or is_system_topic(topic)


@routes.on(DeleteTopic)
def delete_topic(broker: Broker, request: Request[DeleteTopic]) -> Awaitable[Reply]:
    """Delete a topic, its queues and all progress in it. Deleting a missing topic succeeds."""
    check_is_master(broker)
    topic = request.header.topic
    fault = topic_fault(topic)
    if fault is None and _belongs_to_the_broker(broker, topic):
        fault = f"topic {topic} belongs to the broker and cannot be deleted"
    if fault is not None:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)
    try:
        # First, so that a full disk leaves the topic and all progress in it unchanged.
        broker.store.delete_topic(topic, broker.clock())
    except DiskFull as error:
        text = f"topic {topic} is not deleted: {error}; make room and delete it again"
        raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, text) from error
    if broker.topics.remove(topic):
        audit(request, "deleted topic %s", topic)
    broker.traffic.dedup.drop_topic(topic)
    broker.offsets.remove_topic(topic)
    broker.arrivals.end_topic(topic)
    return reply_when_deleted(broker, broker.topics)


@routes.on(GetTopicConfig)
def get_topic_config(broker: Broker, request: Request[GetTopicConfig]) -> Reply:
    """One topic's configuration."""
    config = broker.topics.get(request.header.topic)
    if config is None:
        text = f"topic {request.header.topic} does not exist on {broker.config.broker_name}"
        raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, text)
    return Reply(body=config.to_json())


@routes.on(GetAllTopicConfig)
async def get_all_topic_config(broker: Broker, request: Request[GetAllTopicConfig]) -> Reply:
    """Return all topics' configurations, or one page of them in order of their names."""
    header = request.header
    table = broker.topics.table()
    rows = table.topic_config_table
    names = page_of(
        rows,
        table.data_version,
        first=header.topic_seq,
        most=header.max_topic_num,
        asked_version=header.data_version,
    )
    page = {name: rows[name] for name in names}
    body = RegisteredTopics(topic_config_table=page, data_version=table.data_version)
    answer = await broker.workers.run(body.to_json)
    return Reply(AllTopicConfig(total_topic_num=len(rows)), answer)


@routes.on(GetSystemTopicsOfBroker)
def get_system_topics(broker: Broker, request: Request[GetSystemTopicsOfBroker]) -> Reply:
    """Return the broker's own topics, including those named after the cluster and the broker."""
    topics = {
        topic.topic_name
        for topic in broker.topics
        if _belongs_to_the_broker(broker, topic.topic_name)
    }
    return Reply(body=TopicList(topic_list=frozenset(topics)).to_json())
