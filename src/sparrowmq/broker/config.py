"""Settings of one broker process."""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from sparrowmq.net.endpoint import Limits
from sparrowmq.net.kinds import wrong_kind
from sparrowmq.net.peers import split_address
from sparrowmq.protocol.delay import MAX_TIMER_DELAY_MS
from sparrowmq.protocol.hosts import encode_host
from sparrowmq.store.config import StoreConfig

MASTER_ID = 0


class Flush(StrEnum):
    """When a send is acknowledged."""

    ASYNC = "ASYNC_FLUSH"
    SYNC = "SYNC_FLUSH"


class ConfigError(ValueError):
    """A setting cannot be used; the text names it, its value and what is allowed."""


_NO_SLAVES = "must be 0: there is no replication yet, so that a slave would never have a message"
_NO_ROOM_FOR_VIP = "must be 0, or 3 to 65535: port - 2 is used too, unless vip-alias is off"
_NOT_EMPTY = ("broker_name", "cluster_name", "listen_host")
_MORE_THAN_0 = (
    *("flush_interval_s", "flush_timeout_s", "register_interval_s", "client_timeout_s"),
    *("lock_timeout_s", "offsets_journal_s", "offsets_save_s", "busy_lag_s"),
    *("transaction_check_interval_s", "transaction_check_max"),
    *("max_topics", "max_groups", "max_queues_per_topic", "max_message_bytes"),
    *("max_properties_bytes", "max_pull_count", "max_pull_bytes", "max_asked_pull_bytes"),
)
_NOT_NEGATIVE = (
    *("long_poll_s", "max_waiting_pulls", "session_timeout_s", "young_queue_bytes"),
    *("max_timer_delay_s", "transaction_timeout_s"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """One broker. Every default is RocketMQ's unless its text says otherwise."""

    data_dir: Path
    """The directory of messages and everything else; each broker needs its own."""
    cluster_name: str = "DefaultCluster"
    """Brokers of one cluster are shown and addressed together."""
    broker_name: str = "broker-a"
    """Clients know a broker by its name: another name means another broker."""
    broker_id: int = MASTER_ID
    """0 is the master. There are no slaves yet."""
    name_servers: tuple[str, ...] = ()
    """host:port of each name server; the broker registers with all of them."""

    listen_host: str = "127.0.0.1"
    """The address on which connections are accepted; loopback by default."""
    advertise_host: str = ""
    """The host that clients connect to, as name servers hand it out; empty means listen_host."""
    port: int = 10911
    """0 takes a free port (and no VIP alias)."""
    vip_alias: bool = True
    """Listen on port - 2 as well: older clients send there (the VIP channel)."""
    ha_port: int = 10912
    """The port that slaves would connect to; nothing listens there yet."""

    flush: Flush = Flush.ASYNC
    """ASYNC answers before fsync: faster, and a power cut may lose the last half second."""
    flush_interval_s: float = 0.5
    """How long an asynchronously flushed message may stay unsynced."""
    flush_timeout_s: float = 5.0
    """How long a synchronous send waits for its fsync before FLUSH_DISK_TIMEOUT."""

    auto_create_topic: bool = True
    """Whether the first send to a topic creates it."""
    auto_create_group: bool = True
    """Whether the first member of a consumer group creates it."""
    default_queues: int = 8
    """Queues of TBW102 and of topics that operators create without saying how many."""
    max_topics: int = 10_000
    """More topics are not created. Each one costs memory here and at name servers."""
    max_groups: int = 10_000
    """More consumer groups are not created."""
    max_queues_per_topic: int = 4_096
    """Topics with more queues are not created: clients build a list of them."""

    max_message_bytes: int = 4 * 1024 * 1024
    """Larger bodies are refused."""
    max_properties_bytes: int = 32_767
    """Messages with longer properties are refused; a record has no room for more."""
    max_pull_count: int = 4_096
    """Messages in one reply, whatever a client asks for. Java clients ask for 32."""
    max_pull_bytes: int = 1024 * 1024
    """Bytes in one reply unless the client asks for more."""
    max_asked_pull_bytes: int = 4 * 1024 * 1024
    """Bytes in one reply when the client asks."""
    long_poll_s: float = 30.0
    """The longest an empty pull may wait; clients ask for 15 or 20 s."""
    max_waiting_pulls: int = 100_000
    """Further empty pulls are answered at once instead of waiting."""

    register_interval_s: float = 30.0
    """How often the broker registers; name servers drop one that is silent for 2 minutes."""
    client_timeout_s: float = 120.0
    """A client silent for this long is forgotten and its connection closed."""
    session_timeout_s: float = 4.0
    """The same for consumers of our own client, which beat four times as often; 0 never."""
    notify_consumer_ids_changed: bool = True
    """Notify members at once when others come or go; else they learn it by their 20 s timer."""
    lock_timeout_s: float = 60.0
    """An ordered queue's lock that is not renewed for this long is free."""
    offsets_journal_s: float = 1.0
    """The most progress of consumer groups that a crash can undo."""
    offsets_save_s: float = 5.0
    """How often consumerOffset.json is rewritten."""
    young_queue_bytes: int = 8 * 1024**3
    """A queue whose first message lies at most this far before the log's end is young: a group
    without progress starts at 0 there. Apache takes 40 % of the machine's memory."""

    max_timer_delay_s: float = MAX_TIMER_DELAY_MS / 1000
    """Delivery times further ahead are refused: the log does not keep messages for longer."""
    transaction_timeout_s: float = 6.0
    """How long after a half message was stored its producers are asked how it ended."""
    transaction_check_interval_s: float = 30.0
    """How often they are asked again."""
    transaction_check_max: int = 15
    """After so many questions it is moved to TRANS_CHECK_MAX_TIME_TOPIC."""

    busy_lag_s: float = 0.2
    """A loop that lags this far refuses sends with SYSTEM_BUSY until it has caught up."""

    limits: Limits = field(default_factory=Limits)
    store: StoreConfig = field(default_factory=StoreConfig)

    def __post_init__(self) -> None:
        if complaint := wrong_kind(self):
            raise ConfigError(complaint)
        checks = (
            ("port", 0 <= self.port <= 65_535, "must be 0 to 65535"),
            ("port", not self.vip_alias or self.port not in (1, 2), _NO_ROOM_FOR_VIP),
            ("ha_port", 0 <= self.ha_port <= 65_535, "must be 0 to 65535"),
            ("broker_id", self.broker_id == MASTER_ID, _NO_SLAVES),
            ("default_queues", self.default_queues >= 1, "must be 1 or more"),
            *(
                (name, bool(getattr(self, name).strip()), "must not be empty")
                for name in _NOT_EMPTY
            ),
            *((name, getattr(self, name) > 0, "must be more than 0") for name in _MORE_THAN_0),
            *((name, getattr(self, name) >= 0, "must be 0 or more") for name in _NOT_NEGATIVE),
        )
        for name, is_fine, allowed in checks:
            if not is_fine:
                raise ConfigError(f"{name} is {getattr(self, name)}, {allowed}")
        if self.default_queues > self.max_queues_per_topic:
            raise ConfigError(
                "default_queues and max_queues_per_topic must not fall,"
                f" are {self.default_queues}, {self.max_queues_per_topic}"
            )
        if min(self.store.delay_levels_ms, default=0) <= 0:
            raise ConfigError("delay_levels_ms: must be one time or more, each more than 0")
        for address in self.name_servers:
            try:
                split_address(address)
            except ValueError as error:
                raise ConfigError(f"name_servers: {error}, such as 127.0.0.1:9876") from error

    @property
    def advertised_host(self) -> str:
        """The host that name servers hand to clients."""
        return self.advertise_host or self.listen_host

    def address(self, port: int) -> str:
        """host:port that clients connect to."""
        return f"{self.advertised_host}:{port}"

    def store_config(self, port: int) -> StoreConfig:
        """The store's settings for a broker that listens on this port.

        With synchronous flush no unsynced message is visible, so there is no window for them.
        """
        window = 0 if self.flush is Flush.SYNC else self.store.unsynced_window
        return replace(self.store, store_host=self._store_host(port), unsynced_window=window)

    def _store_host(self, port: int) -> bytes:
        """The address as each record carries it. A name that is no IP address counts as 127.0.0.1:
        records have room for addresses only."""
        try:
            return encode_host(self.advertised_host, port)
        except ValueError:
            return encode_host("127.0.0.1", port)
