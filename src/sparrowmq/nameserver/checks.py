"""Checks of registrations. Everything is checked before anything is changed."""

from collections.abc import Generator
from typing import NoReturn

from sparrowmq.nameserver.brokers import Registration
from sparrowmq.nameserver.config import NameServerConfig
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.peers import split_address
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.perm import PERM_PRIORITY
from sparrowmq.protocol.route import QueueData
from sparrowmq.protocol.topic_config import TopicConfig

NAME_MAX = 255
_MAX_ID = 2**63 - 1
_MAX_TIMEOUT_MS = 24 * 3600 * 1000
_MAX_PERM = 2 * PERM_PRIORITY - 1
_MAX_FLAG = 2**31 - 1


def check_registration(
    registration: Registration, config: NameServerConfig
) -> Generator[None, None, None]:
    """Yields after each topic. Raises RequestRefused naming the fault."""
    check_name("cluster name", registration.cluster)
    check_name("broker name", registration.broker_name)
    check_range("broker id", registration.broker_id, 0, _MAX_ID)
    check_range("heartbeatTimeoutMillis", registration.timeout_ms, 1, _MAX_TIMEOUT_MS)
    _check_address("broker address", registration.address)
    if registration.ha_address:  # a broker without replication may leave it blank
        _check_address("HA server address", registration.ha_address)
    if registration.zone_name is not None:
        check_name("zone name", registration.zone_name)
    _check_count("topics", len(registration.topics), config.max_topics_per_broker)
    _check_count("topic mappings", len(registration.mappings), config.max_topics_per_broker)
    _check_count("filter servers", len(registration.filter_servers), NAME_MAX)
    for server in registration.filter_servers:
        check_name("filter server", server)
    for name in registration.mappings:
        check_name("topic", name)
    seen: set[tuple[int, int, int, int]] = set()
    for topic in registration.topics:
        # Most topics of a broker differ only in their names, and there may be thousands.
        numbers = (
            topic.read_queue_nums,
            topic.write_queue_nums,
            topic.perm,
            topic.topic_sys_flag,
        )
        if numbers in seen:
            check_name("topic", topic.topic_name)
        else:
            check_topic(topic.topic_name, topic, config.max_queues_per_topic)
            seen.add(numbers)
        yield


def check_topic(name: str, queues: TopicConfig | QueueData, max_queues: int) -> None:
    """Check a topic on one broker. Raises RequestRefused naming the fault."""
    check_name("topic", name)
    check_range(f"readQueueNums of topic {name}", queues.read_queue_nums, 0, max_queues)
    check_range(f"writeQueueNums of topic {name}", queues.write_queue_nums, 0, max_queues)
    check_range(f"perm of topic {name}", queues.perm, 0, _MAX_PERM)
    check_range(f"topicSysFlag of topic {name}", queues.topic_sys_flag, 0, _MAX_FLAG)


def check_name(what: str, name: str) -> None:
    """Refuse only impossible names: brokers name topics more freely than operators may."""
    if not name or len(name) > NAME_MAX or not name.isprintable():
        shown = name if len(name) <= NAME_MAX else f"{name[:80]}…"
        _refuse(f"{what} {shown!r} must have 1 to {NAME_MAX} printable characters")


def check_range(what: str, value: int, lowest: int, highest: int) -> None:
    """Raises RequestRefused stating what is allowed."""
    if not lowest <= value <= highest:
        _refuse(f"{what} is {value}, must be {lowest} to {highest}")


def _check_address(what: str, address: str) -> None:
    check_name(what, address)
    try:
        split_address(address)
    except ValueError:
        _refuse(f"{what} {address!r} must be host:port")


def _check_count(what: str, count: int, most: int) -> None:
    if count > most:
        _refuse(f"{count} {what} in one registration, at most {most} allowed")


def _refuse(text: str) -> NoReturn:
    raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
