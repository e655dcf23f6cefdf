"""Topic and group names: legal, reserved and derived ones."""

import re

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
SYSTEM_PREFIX = "rmq_sys_"

TOPIC_MAX = 127
RETRY_TOPIC_MAX = 255
GROUP_MAX = 120
"""Shorter than a topic's, because %RETRY%group and similar topics must fit."""

AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
BENCHMARK_TOPIC = "BenchmarkTest"
TRANS_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"

ROCKSDB_TRANS_TOPICS = ("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC")
"""Where Apache's brokers from 5.5 on keep half messages if they store them in RocksDB."""
SYSTEM_TOPICS = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        TRACE_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        CHECKPOINT_TOPIC,
        *ROCKSDB_TRANS_TOPICS,
    }
)
"""The broker's own topics, from Apache's TopicValidator; all of rmq_sys_* belong to it too."""

UNSENDABLE_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        *ROCKSDB_TRANS_TOPICS,
    }
)
"""Topics that only the broker itself writes to."""

SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
DEFAULT_CONSUMER_GROUP = "DEFAULT_CONSUMER"
DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"
INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
"""The group of every Java process, even of one that only consumes."""
SYSTEM_GROUPS = frozenset(
    {
        DEFAULT_CONSUMER_GROUP,
        DEFAULT_PRODUCER_GROUP,
        INNER_PRODUCER_GROUP,
        "SELF_TEST_P_GROUP",
        "TOOLS_CONSUMER",
        "SCHEDULE_CONSUMER",
        "FILTERSRV_CONSUMER",
        "__MONITOR_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PULL",
    }
)

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")
_SHOWN = 160
"""Longer names are cut in error texts: a hostile name may be a mebibyte."""


def topic_fault(topic: str) -> str | None:
    """What is wrong with a topic name, None if it is valid."""
    derived = str(topic).startswith((RETRY_PREFIX, DLQ_PREFIX))
    kind = "retry or dead-letter topic" if derived else "topic"
    return _fault(kind, topic, RETRY_TOPIC_MAX if derived else TOPIC_MAX)


def group_fault(group: str) -> str | None:
    """What is wrong with a group name, None if it is valid."""
    return _fault("group", group, GROUP_MAX)


def send_fault(topic: str) -> str | None:
    """Why clients may not send to this topic, None if they may."""
    if topic in UNSENDABLE_TOPICS or str(topic).startswith(SYSTEM_PREFIX):
        return f"topic {topic} belongs to the broker, clients cannot send to it; choose another"
    return topic_fault(topic)


def check_topic(topic: str) -> str:
    """The topic itself; raises ValueError stating what is allowed."""
    return _checked(topic, topic_fault(topic))


def check_group(group: str) -> str:
    """The group itself; raises ValueError stating what is allowed."""
    return _checked(group, group_fault(group))


def check_consumer_group(group: str) -> str:
    """`check_group` for a consumer. Java's consumers refuse the default group, and so do we:
    programs that forgot to set one would share each other's messages."""
    return _checked(group, group_fault(group) or _default_fault(group, DEFAULT_CONSUMER_GROUP))


def check_producer_group(group: str) -> str:
    """`check_group` for a producer."""
    return _checked(group, group_fault(group) or _default_fault(group, DEFAULT_PRODUCER_GROUP))


def is_system_topic(topic: str) -> bool:
    """Whether the topic belongs to the broker rather than to users."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def is_system_group(group: str) -> bool:
    """Whether the group belongs to RocketMQ's own tools."""
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def is_retry_topic(topic: str) -> bool:
    """Whether this is the retry topic of a group."""
    return topic.startswith(RETRY_PREFIX)


def is_dlq_topic(topic: str) -> bool:
    """Whether this topic holds the dead letters of a group."""
    return topic.startswith(DLQ_PREFIX)


def retry_topic(group: str) -> str:
    """The topic from which a group gets its failed messages again."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """The topic that keeps a group's dead letters."""
    return DLQ_PREFIX + group


def _fault(kind: str, name: str, max_length: int) -> str | None:
    given: object = name  # usually None: a missing setting
    if not isinstance(given, str):
        return f"the {kind} name is {name!r}, must be a str"
    if not name or name.isspace():
        return f"the {kind} name is blank"
    shown = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"
    if _LEGAL.fullmatch(name) is None:
        return (
            f"{kind} {shown!r} has characters that are not allowed; allowed are letters a to z and"
            " A to Z, digits, %, |, _ and -"
        )
    if len(name) > max_length:
        return f"{kind} {shown} has {len(name)} characters, at most {max_length} are allowed"
    return None


def _default_fault(group: str, default: str) -> str | None:
    if group != default:
        return None
    return f"group {group} is what RocketMQ's clients have without a group of their own; choose one"


def _checked(name: str, fault: str | None) -> str:
    if fault is not None:
        raise ValueError(fault)
    return name
