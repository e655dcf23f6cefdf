"""Settings of one broker process."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from sparrowmq.config_fields import (
    Allowed,
    ConfigError,
    at_least,
    between,
    check_fields,
    more_than,
    not_blank,
    required,
    setting,
)
from sparrowmq.net.endpoint import Limits
from sparrowmq.net.peers import split_address
from sparrowmq.protocol.delay import MAX_TIMER_DELAY_MS
from sparrowmq.protocol.hosts import encode_host
from sparrowmq.protocol.locks import LOCK_LIFE_S
from sparrowmq.store.config import StoreConfig

MASTER_ID = 0
METRICS_PORT = 5557
"""Apache's brokers have it too (metricsPromExporterPort)."""
NO_METRICS = -1
_VIP_PORTS = Allowed(
    "must be 0, or 3 to 65535", why="port - 2 is used too, unless vip-alias is off"
)
_LAST_PORT = 65_535
_PORT_FOR_SLAVES = Allowed(
    f"must be less than {_LAST_PORT}", why="port + 1 is used too, unless ha-port is given"
)


class Flush(StrEnum):
    """When a send is acknowledged."""

    ASYNC = "ASYNC_FLUSH"
    SYNC = "SYNC_FLUSH"


class ReplicationMode(StrEnum):
    """Whether a send waits for slaves before it is acknowledged."""

    ASYNC = "ASYNC_MASTER"
    SYNC = "SYNC_MASTER"


class ReplicationPeer(StrEnum):
    """Which brokers may follow, and be followed."""

    SPARROWMQ = "sparrowmq"
    APACHE = "apache"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Settings of one broker. Every default is RocketMQ's unless its text says otherwise."""

    data_dir: Path = field(
        metadata=required(
            "Where messages are kept; one directory per broker, for all that it keeps."
        )
    )
    cluster_name: str = setting(
        "DefaultCluster", "Brokers of one cluster are listed and addressed together.", not_blank()
    )
    broker_name: str = setting(
        "broker-a",
        "Clients identify a broker by its name: another name means another broker.",
        not_blank(),
    )
    broker_id: int = setting(
        MASTER_ID,
        "0 is the master, others are its slaves. A slave follows the master of the same name.",
        at_least(MASTER_ID),
    )
    name_servers: tuple[str, ...] = setting((), "Where to register: host:port of each name server.")

    listen_host: str = setting(
        "127.0.0.1",
        "Where to accept connections. Loopback by default: there is no authentication yet.",
        not_blank(),
    )
    advertise_host: str = setting(
        "", "Host that name servers hand to clients; the listening one when empty."
    )
    port: int = setting(
        10911,
        "The broker's port; 0 takes a free one. There is no VIP alias then.",
        between(0, _LAST_PORT),
    )
    vip_alias: bool = setting(
        True, "Listen on port - 2 as well: older clients send there (the VIP channel)."
    )
    ha_port: int = setting(
        0,
        "The port that slaves copy the log from; 0 takes the broker's port + 1.",
        between(0, _LAST_PORT),
    )

    metrics_port: int = setting(
        METRICS_PORT,
        "Port of /metrics, /healthz and /readyz; 0 takes a free one, -1 switches them off. A taken"
        " one gives way to a free one, and with port 0 the default does.",
        between(NO_METRICS, _LAST_PORT),
    )
    metrics_listen_host: str = setting(
        "127.0.0.1",
        "Where these pages are served. Loopback by default: everybody who reaches them may read.",
        not_blank(),
    )
    metrics_per_queue: bool = setting(
        False,
        "Whether the lag of each queue is a metric of its own: one more line per group and queue.",
    )

    replication: ReplicationMode = setting(
        ReplicationMode.ASYNC,
        "Whether sends wait for slaves. SYNC answers one when in-sync-replicas brokers have the"
        " message, ASYNC when this one has it.",
    )
    in_sync_replicas: int = setting(
        0,
        "Copies that an acknowledgement stands for, the master's own among them; 0 takes 2 when"
        " replication is synchronous, else 1.",
        at_least(0),
    )
    min_in_sync_replicas: int = setting(
        1,
        "With fewer copies in sync, the master's own among them, messages are refused.",
        at_least(1),
    )
    slave_timeout_s: float = setting(
        3.0,
        "How long a send waits for slaves before FLUSH_SLAVE_TIMEOUT.",
        more_than(0),
    )
    max_slave_gap_bytes: int = setting(
        256 * 1024 * 1024,
        "A slave that is further behind is not in sync: sends do not wait for it.",
        at_least(0),
    )
    ha_chunk_bytes: int = setting(
        128 * 1024,
        "Bytes of the log that a slave is sent at once.",
        between(1024, 4 * 1024 * 1024),
    )
    slave_reads: bool = setting(
        True,
        "Whether consumers are sent to slaves for messages that the master would have to read from"
        " its device, or while it is busy; and whether a slave answers pulls at all.",
    )
    slave_read_gap_bytes: int = setting(
        64 * 1024 * 1024,
        "A consumer that waits for the device is sent to a slave if it is further from the end of"
        " the log than this; it is sent back when it is within half of it.",
        at_least(0),
    )
    replication_peer: ReplicationPeer = setting(
        ReplicationPeer.SPARROWMQ,
        "apache lets slaves in that do not introduce themselves, such as Apache's brokers, and lets"
        " a slave follow a master of Apache's.",
    )
    accept_loss: str = setting(
        "",
        "The name of this broker, to let a master start whose slaves cannot be asked for messages"
        " that it may have lost.",
    )

    flush: Flush = setting(
        Flush.ASYNC,
        "Whether sends wait for the disk. ASYNC answers before fsync: faster, and a power cut may"
        " lose the last half second.",
    )
    flush_interval_s: float = setting(
        0.5, "How long an asynchronously flushed message may stay unsynced.", more_than(0)
    )
    flush_timeout_s: float = setting(
        5.0,
        "How long a synchronous send waits for its fsync before FLUSH_DISK_TIMEOUT.",
        more_than(0),
    )

    auto_create_topic: bool = setting(True, "Whether the first send to a topic creates it.")
    auto_create_group: bool = setting(
        True, "Whether the first member of a consumer group creates it."
    )
    default_queues: int = setting(
        8,
        "Queues of TBW102 and of topics created without a number of queues.",
        at_least(1),
    )
    max_topics: int = setting(
        10_000,
        "No more topics than this are created. Each costs memory here and at name servers.",
        more_than(0),
    )
    max_groups: int = setting(
        10_000,
        "No more consumer groups than this are created, and no more producer groups registered.",
        more_than(0),
    )
    max_queues_per_topic: int = setting(
        4_096,
        "Topics with more queues are not created: clients build a list of them.",
        more_than(0),
    )

    max_message_bytes: int = setting(4 * 1024 * 1024, "Larger bodies are refused.", more_than(0))
    max_properties_bytes: int = setting(
        32_767,
        "Messages with longer properties are refused; a record has no room for more.",
        more_than(0),
    )
    max_pull_count: int = setting(
        4_096,
        "Messages in one reply, even when a client asks for more. Java clients ask for 32.",
        more_than(0),
    )
    max_pull_bytes: int = setting(
        1024 * 1024, "Bytes in one reply unless the client asks for more.", more_than(0)
    )
    max_asked_pull_bytes: int = setting(
        4 * 1024 * 1024, "Bytes in one reply when the client asks for more.", more_than(0)
    )
    long_poll_s: float = setting(
        30.0, "The longest an empty pull may wait; clients ask for 15 or 20 s.", at_least(0)
    )
    max_waiting_pulls: int = setting(
        100_000, "Further empty pulls are answered at once instead of waiting.", at_least(0)
    )

    register_interval_s: float = setting(
        30.0,
        "How often the broker registers with name servers, which drop one silent for 2 minutes.",
        more_than(0),
    )
    client_timeout_s: float = setting(
        120.0,
        "A client silent for this long is forgotten and its connection closed.",
        more_than(0),
    )
    session_timeout_s: float = setting(
        4.0,
        "The same for consumers of SparrowMQ's client, which send heartbeats four times as often"
        " as this; 0 never.",
        at_least(0),
    )
    notify_consumer_ids_changed: bool = setting(
        True,
        "Notify members at once when others join or leave; otherwise they find out by their 20 s"
        " timer.",
    )
    lock_timeout_s: float = setting(
        LOCK_LIFE_S,
        "A queue's lock that is not renewed for this long is free for other members. Members rely"
        " on 60 s: with less, two of them could work on one queue.",
        at_least(LOCK_LIFE_S, "members rely on a lock for that long after they renewed it"),
    )
    offsets_journal_s: float = setting(
        1.0, "The most progress of consumer groups that a power cut can undo.", more_than(0)
    )
    offsets_save_s: float = setting(
        5.0, "How often consumerOffset.json is rewritten.", more_than(0)
    )
    young_queue_bytes: int = setting(
        8 * 1024**3,
        "A queue whose first message is at most this far from the end of the log is young: a group"
        " without progress starts at 0 there. Apache's broker takes 40 % of the machine's memory.",
        at_least(0),
    )

    max_timer_delay_s: float = setting(
        MAX_TIMER_DELAY_MS / 1000,
        "Delivery times further ahead are refused: the log does not keep messages for longer.",
        at_least(0),
    )
    transaction_timeout_s: float = setting(
        6.0,
        "Age at which the broker asks the producer about a half message whose transaction is still"
        " open.",
        at_least(0),
    )
    transaction_check_interval_s: float = setting(
        30.0, "How long the broker waits before it asks again.", more_than(0)
    )
    transaction_check_max: int = setting(
        15,
        "After so many checks a half message is moved to TRANS_CHECK_MAX_TIME_TOPIC.",
        more_than(0),
    )

    busy_lag_s: float = setting(
        0.2,
        "Sends are refused with SYSTEM_BUSY while the event loop lags this far.",
        more_than(0),
    )

    limits: Limits = field(default_factory=Limits)
    store: StoreConfig = field(default_factory=StoreConfig)

    origins: tuple[tuple[str, str], ...] | None = setting(
        None, "Set by the command: fields that were given, and where, for operators who ask."
    )

    def __post_init__(self) -> None:
        check_fields(self, self._faults())

    def _faults(self) -> Iterator[ConfigError]:
        """Faults that the rules of single fields do not catch."""
        if self.vip_alias and self.port in (1, 2):
            yield ConfigError("port", self.port, _VIP_PORTS)
        taken = (self.port, self.port - 2) if self.vip_alias else (self.port,)
        if self.port and self.ha_port and self.ha_port in taken:
            yield ConfigError("ha_port", self.ha_port, "must not be a port that clients use")
        if self.port == _LAST_PORT and not self.ha_port:
            yield ConfigError("port", self.port, _PORT_FOR_SLAVES)
        if self.default_queues > self.max_queues_per_topic:
            yield ConfigError(
                ("default_queues", "max_queues_per_topic"),
                (self.default_queues, self.max_queues_per_topic),
                "must not fall",
            )
        if self.is_slave and not self.name_servers:
            text = "must not be empty: a slave finds its master through a name server"
            yield ConfigError("name_servers", self.name_servers, text)
        if self.min_in_sync_replicas > self._acknowledged_copies:
            why = f"is {self._acknowledged_copies} here" + (
                "" if self.replication is ReplicationMode.SYNC else " because replication is ASYNC"
            )
            most = Allowed("must not be more than in-sync-replicas", why=f"that {why}")
            yield ConfigError("min_in_sync_replicas", self.min_in_sync_replicas, most)
        for address in self.name_servers:
            try:
                split_address(address)
            except ValueError as error:
                allowed = f"{error}, such as 127.0.0.1:9876"
                yield ConfigError("name_servers", self.name_servers, allowed)

    @property
    def is_slave(self) -> bool:
        """Whether it copies a master's log and takes no messages itself."""
        return self.broker_id != MASTER_ID

    @property
    def copies_wanted(self) -> int:
        """How many copies an acknowledgement guarantees, including this broker's own."""
        return 1 if self.is_slave else self._acknowledged_copies

    @property
    def _acknowledged_copies(self) -> int:
        return 1 if self.replication is ReplicationMode.ASYNC else self.in_sync_replicas or 2

    @property
    def advertised_host(self) -> str:
        """The host that name servers give to clients."""
        return self.advertise_host or self.listen_host

    def address(self, port: int) -> str:
        """The host:port to which clients connect."""
        return f"{self.advertised_host}:{port}"

    @property
    def wanted_metrics_port(self) -> int | None:
        """The port to try for metrics; None if they are switched off."""
        if self.metrics_port == NO_METRICS:
            return None
        is_anywhere = self.port == 0 and self.metrics_port == METRICS_PORT
        return 0 if is_anywhere else self.metrics_port

    def store_config(self, port: int) -> StoreConfig:
        """The store's settings for a broker that listens on this port.

        With synchronous flush no unsynced message is visible, and with synchronous replication no
        message that too few brokers have, so `unsynced_window` does not apply.
        """
        is_replicated = self.copies_wanted > 1
        has_window = self.flush is Flush.ASYNC and not is_replicated
        return replace(
            self.store,
            store_host=self._store_host(port),
            unsynced_window=self.store.unsynced_window if has_window else 0,
            is_shown_by_owner=is_replicated,
        )

    def _store_host(self, port: int) -> bytes:
        """The address in each record. A name that is not an IP address becomes 127.0.0.1: records
        have room for addresses only."""
        try:
            return encode_host(self.advertised_host, port)
        except ValueError:
            return encode_host("127.0.0.1", port)
