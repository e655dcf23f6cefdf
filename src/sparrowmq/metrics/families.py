"""The metrics of the servers: RocketMQ 5's names, labels and buckets, and a few of our own.

Apache's exporter of 5.5.0 adds the unit to a name (`rocketmq_storage_size_bytes`), earlier ones and
its documentation do not (`rocketmq_storage_size`). Dashboards exist for both, so both are exported:
`earlier_name` is the second spelling.
"""

from enum import StrEnum

import msgspec


class MetricKind(StrEnum):
    """The Prometheus type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """One metric with all its labels."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    earlier_name: str = ""
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram, without infinity."""

    @property
    def names(self) -> tuple[str, ...]:
        """All spellings."""
        return (self.name, self.earlier_name) if self.earlier_name else (self.name,)


def _counter(name: str, text: str, *labels: str) -> Family:
    return Family(name=name, kind=MetricKind.COUNTER, help=text, labels=labels)


def _gauge(name: str, text: str, *labels: str, unit: str = "") -> Family:
    if not unit:
        return Family(name=name, kind=MetricKind.GAUGE, help=text, labels=labels)
    return Family(
        name=f"{name}_{unit}", kind=MetricKind.GAUGE, help=text, labels=labels, earlier_name=name
    )


def _histogram(
    name: str, text: str, *labels: str, buckets: tuple[float, ...], unit: str = ""
) -> Family:
    return Family(
        name=f"{name}_{unit}" if unit else name,
        kind=MetricKind.HISTOGRAM,
        help=text,
        labels=labels,
        earlier_name=name if unit else "",
        buckets=buckets,
    )


_TOPIC = ("is_system", "message_type", "topic")
_GROUP = ("consumer_group", "is_system", "topic")
_LAG = ("consumer_group", "is_retry", "is_system", "topic")
_STORAGE = ("storage_medium", "storage_type")
_MS = "milliseconds"
_CREATION_MS = (10.0, 100.0, 1000.0, 3000.0, 5000.0)

# ---- RocketMQ's

MESSAGES_IN = _counter("rocketmq_messages_in_total", "Messages that were stored.", *_TOPIC)
THROUGHPUT_IN = _counter("rocketmq_throughput_in_total", "Bytes that were stored.", *_TOPIC)
MESSAGE_SIZE = _histogram(
    "rocketmq_message_size",
    "Bytes of stored messages.",
    *_TOPIC,
    buckets=(1024.0, 4096.0, 524288.0, 1048576.0, 2097152.0, 4194304.0),
)
MESSAGES_OUT = _counter(
    "rocketmq_messages_out_total", "Messages that groups have consumed.", *_GROUP
)
THROUGHPUT_OUT = _counter(
    "rocketmq_throughput_out_total", "Bytes that groups have consumed.", *_GROUP
)
SENT_TO_DLQ = _counter(
    "rocketmq_send_to_dlq_messages_total", "Messages that became dead letters.", *_GROUP
)
LAG = _gauge("rocketmq_consumer_lag_messages", "Messages that are not consumed yet.", *_LAG)
READY = _gauge("rocketmq_consumer_ready_messages", "Messages that were not pulled yet.", *_LAG)
INFLIGHT = _gauge(
    "rocketmq_consumer_inflight_messages", "Messages that were pulled and not consumed yet.", *_LAG
)
LAG_LATENCY = _gauge(
    "rocketmq_consumer_lag_latency", "Age of the oldest unconsumed message.", *_LAG, unit=_MS
)
QUEUEING_LATENCY = _gauge(
    "rocketmq_consumer_queueing_latency",
    "Age of the oldest message that was not pulled.",
    *_LAG,
    unit=_MS,
)
PRODUCER_CONNECTIONS = _gauge(
    "rocketmq_producer_connections",
    "Producers that are connected.",
    *("language", "protocol_type", "version"),
)
CONSUMER_CONNECTIONS = _gauge(
    "rocketmq_consumer_connections",
    "Consumers that are connected.",
    *("consume_mode", "consumer_group", "is_system", "language", "protocol_type", "version"),
)
WATERMARK = _gauge(
    "rocketmq_processor_watermark", "Requests that wait for a thread: none.", "processor"
)
PERMISSION = _gauge("rocketmq_broker_permission", "2 takes messages, 4 gives them out, 6 both.")
TOPIC_NUMBER = _gauge("rocketmq_topic_number", "Topics of this broker.")
GROUP_NUMBER = _gauge("rocketmq_consumer_group_number", "Consumer groups of this broker.")
STORAGE_SIZE = _gauge(
    "rocketmq_storage_size", "Bytes in use on the file system.", *_STORAGE, unit="bytes"
)
FLUSH_BEHIND = _gauge(
    "rocketmq_storage_flush_behind_bytes", "Bytes that a power cut would lose.", *_STORAGE
)
DISPATCH_BEHIND = _gauge(
    "rocketmq_storage_dispatch_behind_bytes", "Bytes without an entry in a queue: none.", *_STORAGE
)
RESERVE_TIME = _gauge(
    "rocketmq_storage_message_reserve_time", "Age of the oldest message.", *_STORAGE, unit=_MS
)
TIMER_ENQUEUE_LAG = _gauge(
    "rocketmq_timer_enqueue_lag", "Timed messages that are not scheduled yet: none.", *_STORAGE
)
TIMER_ENQUEUE_LATENCY = _gauge(
    "rocketmq_timer_enqueue_latency", "Scheduling latency; always 0.", *_STORAGE, unit=_MS
)
TIMER_DEQUEUE_LATENCY = _gauge(
    "rocketmq_timer_dequeue_latency", "How long delivery is behind.", *_STORAGE, unit=_MS
)
TIMING_MESSAGES = _gauge(
    "rocketmq_timing_messages",
    "Timed messages that wait, under the name of the timer topic.",
    *(*_STORAGE, "topic"),
)
HALF_MESSAGES = _gauge(
    "rocketmq_half_messages",
    "Transactions that have not ended, under the name of the topic of half messages.",
    "topic",
)
COMMITS = _counter("rocketmq_commit_messages_total", "Transactions that were committed.", "topic")
ROLLBACKS = _counter(
    "rocketmq_rollback_messages_total", "Transactions that were rolled back.", "topic"
)
RPC_LATENCY = _histogram(
    "rocketmq_rpc_latency",
    "Time to answer a request; at most 100 requests a second are timed.",
    *("is_long_polling", "protocol_type", "request_code", "response_code", "result"),
    buckets=(1.0, 3.0, 5.0, 7.0, 10.0, 100.0, 1000.0, 2000.0, 3000.0),
    unit=_MS,
)
TOPIC_CREATION = _histogram(
    "rocketmq_topic_create_execution_time",
    "Time to create or change a topic.",
    *("invocation_status", "is_system"),
    buckets=_CREATION_MS,
    unit=_MS,
)
GROUP_CREATION = _histogram(
    "rocketmq_consumer_group_create_execution_time",
    "Time to create or change a consumer group.",
    "invocation_status",
    buckets=_CREATION_MS,
    unit=_MS,
)

# ---- our own

BUILD = _gauge("sparrowmq_build_info", "Always 1; its labels say what runs.", "role", "version")
IS_READY = _gauge("sparrowmq_ready", "1 while /readyz says so.")
IS_BUSY = _gauge("sparrowmq_broker_busy", "1 while sends are refused with SYSTEM_BUSY.")
CONNECTIONS = _gauge("sparrowmq_connections", "Connections that are open.")
WAITING_PULLS = _gauge("sparrowmq_waiting_pulls", "Pulls that wait for a message.")
COPIES_IN_SYNC = _gauge(
    "sparrowmq_copies_in_sync", "Copies of the log that are in sync, the master's own included."
)
SLAVE_FOLLOWS = _gauge(
    "sparrowmq_slave_follows", "1 while a slave that the master remembers follows it.", "broker_id"
)
SLAVE_BEHIND = _gauge(
    "sparrowmq_slave_behind_bytes",
    "Bytes of its master's log that a slave lacks, also while it is away.",
    "broker_id",
)
BEHIND_MASTER = _gauge(
    "sparrowmq_behind_master_bytes", "Bytes of its master's log that this slave lacks."
)
SECONDS_BEHIND_MASTER = _gauge(
    "sparrowmq_behind_master_seconds", "Age of this slave's last message while it lacks the next."
)
LOG_BYTES = _gauge("sparrowmq_commit_log_bytes", "Bytes of the log that are kept.")
DISK_FREE = _gauge("sparrowmq_disk_free_bytes", "Bytes that the file system has left.")
DISK_TOTAL = _gauge("sparrowmq_disk_total_bytes", "Bytes that the file system has.")
QUEUE_LAG = _gauge(
    "sparrowmq_consumer_queue_lag_messages",
    "Lag by queue, with metrics-per-queue only.",
    *("consumer_group", "queue_id", "topic"),
)
REFUSED_SENDS = _counter(
    "sparrowmq_refused_sends_total",
    "Refusals by a quota or largest backlog, also of messages sent again; pulls held for a group.",
    *("limit", "name", "scope"),
)
DROPPED_SENDS = _counter(
    "sparrowmq_dropped_sends_total",
    "Those of them that were sent one-way: no sender was notified.",
    *("limit", "name", "scope"),
)
BACKLOG_REACHED = _gauge(
    "sparrowmq_backlog_reached",
    "1 while sends are refused or slowed because a group is too far behind.",
    "topic",
)
DEDUP_IDS = _gauge("sparrowmq_dedup_ids", "Messages that a topic remembers.", "topic")
DEDUP_DUPLICATES = _counter(
    "sparrowmq_dedup_duplicates_total", "Messages that were sent again, and not stored.", "topic"
)
DEDUP_CUT = _counter(
    "sparrowmq_dedup_cut_total",
    "Messages that were forgotten before their time, because there were too many.",
    "topic",
)
NAMED_BROKERS = _gauge("sparrowmq_nameserver_brokers", "Brokers that are registered.", "cluster")
NAMED_TOPICS = _gauge("sparrowmq_nameserver_topics", "Topics that have a route.")
BROKER_SILENCE = _gauge(
    "sparrowmq_nameserver_broker_silence_seconds",
    "Time since a broker registered or sent a sign of life.",
    *("broker_id", "broker_name"),
)

BROKER_FAMILIES = (
    *(MESSAGES_IN, THROUGHPUT_IN, MESSAGE_SIZE, MESSAGES_OUT, THROUGHPUT_OUT, SENT_TO_DLQ),
    *(LAG, READY, INFLIGHT, LAG_LATENCY, QUEUEING_LATENCY, QUEUE_LAG),
    *(PRODUCER_CONNECTIONS, CONSUMER_CONNECTIONS, WATERMARK),
    *(PERMISSION, TOPIC_NUMBER, GROUP_NUMBER),
    *(STORAGE_SIZE, FLUSH_BEHIND, DISPATCH_BEHIND, RESERVE_TIME, LOG_BYTES, DISK_FREE, DISK_TOTAL),
    *(TIMER_ENQUEUE_LAG, TIMER_ENQUEUE_LATENCY, TIMER_DEQUEUE_LATENCY, TIMING_MESSAGES),
    *(HALF_MESSAGES, COMMITS, ROLLBACKS, RPC_LATENCY, TOPIC_CREATION, GROUP_CREATION),
    *(BUILD, IS_READY, IS_BUSY, CONNECTIONS, WAITING_PULLS),
    *(COPIES_IN_SYNC, SLAVE_FOLLOWS, SLAVE_BEHIND, BEHIND_MASTER, SECONDS_BEHIND_MASTER),
    *(REFUSED_SENDS, DROPPED_SENDS, BACKLOG_REACHED),
    *(DEDUP_IDS, DEDUP_DUPLICATES, DEDUP_CUT),
)
NAME_SERVER_FAMILIES = (
    *(BUILD, IS_READY, CONNECTIONS, NAMED_BROKERS, NAMED_TOPICS, BROKER_SILENCE, RPC_LATENCY),
)
