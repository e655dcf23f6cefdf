"""The sink's options: texts as Spark passes them, turned into one typed value."""

from collections.abc import Mapping
from dataclasses import dataclass

from sparrowmq.cluster_address import NameServerAddresses
from sparrowmq.protocol.names import check_group, send_fault
from sparrowmq.spark.errors import OptionError
from sparrowmq.spark.option_values import (
    NAME_SERVER,
    NO_TABLES,
    KnownOptions,
    ServerOptions,
    find_servers,
    read_count,
    read_flag,
    read_options,
    read_seconds,
    read_servers,
    read_size,
    read_text,
    set_servers,
)

_OF_SPARK = frozenset({"checkpointlocation", "queryname"})
"""Options that Spark passes on although they are meant for Spark itself."""
_MISTAKEN = {
    "path": "a topic is no path: use the option topic",
    "subscribe": "is for reading; the sink's is topic",
}
"""What to use instead of an option, given in lower case, that the sink does not have."""
MAX_MESSAGE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions(ServerOptions):
    """How rows are sent."""

    topic: str | None = None
    """The topic for all rows, whatever their column topic says."""
    group: str = "sparrowmq-spark"
    """The producer group that brokers see."""
    job_id: str | None = None
    """Names a batch write: a repeat under the same name gives partitions the same unique ids."""
    shard_by_property: bool = True
    """Rows without the column shardingKey go by the property __SHARDINGKEY, if they have it."""
    max_rows_per_second: int | None = None
    """At most this many rows per second from each task; coalesce to limit the number of tasks."""
    max_batch_bytes: int = 1 << 20
    """The most bytes in one send. More costs memory, less costs requests."""
    max_message_bytes: int = MAX_MESSAGE_BYTES
    """The largest message that the brokers take (their maxMessageSize)."""
    retry_timeout_s: float = 60.0
    """How long a send may keep failing before its task fails."""
    create_topic: bool = False
    """Create missing topics, on every broker, before the first row is sent to them."""
    create_topic_queues: int = 8
    """Queues per broker of a created topic."""
    waits_for_topics: bool = False
    """Not an option: a topic that is not found existed before, so its broker is away."""

    @property
    def new_topic_queues(self) -> int | None:
        """How many queues a missing topic is created with; None if it is not created."""
        return self.create_topic_queues if self.create_topic else None


def parse_sink_options(
    options: Mapping[str, str], *, servers: NameServerAddresses | None = None
) -> SinkOptions:
    """The options of a writer; `servers` is None while the name servers have not been found.

    Raises OptionError that names the option and what is allowed.
    """
    for given in options:
        if given.lower() in _MISTAKEN:
            raise OptionError(given, _MISTAKEN[given.lower()])
    values = read_options(options, SINK_OPTIONS, "the sink", _OF_SPARK)
    set_servers(values, servers or find_servers(options))
    made = SinkOptions(**values)
    if "create_topic_queues" in values and not made.create_topic:
        raise OptionError("createTopicQueues", "goes with createTopic=true; set that, or remove it")
    if made.max_batch_bytes > made.max_message_bytes:
        text = f"must be at most maxMessageBytes, {made.max_message_bytes}"
        raise OptionError("maxBatchBytes", f"{text}, not {made.max_batch_bytes}")
    return made


def parse_batch_sink_options(
    options: Mapping[str, str], *, servers: NameServerAddresses | None = None
) -> SinkOptions:
    """The options of a batch, which needs at least one: an insert into a table of Spark's catalog
    comes without any, and would go to another cluster than the table names."""
    if not options:
        text = f"missing, and there is no other option; give it. If this is a table: {NO_TABLES}"
        raise OptionError(NAME_SERVER, text)
    return parse_sink_options(options, servers=servers)


def _topic(text: str) -> str:
    fault = send_fault(text)
    if fault is not None:
        raise ValueError(fault)
    return text


SINK_OPTIONS: KnownOptions = {
    NAME_SERVER: ("name_server", read_servers),
    "topic": ("topic", _topic),
    "group": ("group", check_group),
    "createTopic": ("create_topic", read_flag),
    "createTopicQueues": ("create_topic_queues", read_count),
    "jobId": ("job_id", read_text),
    "shardByProperty": ("shard_by_property", read_flag),
    "maxRowsPerSecond": ("max_rows_per_second", read_count),
    "maxBatchBytes": ("max_batch_bytes", read_size),
    "maxMessageBytes": ("max_message_bytes", read_size),
    "retryTimeout": ("retry_timeout_s", read_seconds),
    "requestTimeout": ("request_timeout_s", read_seconds),
}
