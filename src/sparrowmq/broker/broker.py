"""The parts that handlers share. `server.py` opens them; nothing here does I/O by itself."""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from sparrowmq.broker.arrivals import Arrivals
from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.consumer_offsets import ConsumerOffsets
from sparrowmq.broker.drain import Drain
from sparrowmq.broker.durability import Durability
from sparrowmq.broker.groups import Groups, RequestModes
from sparrowmq.broker.live_clients import ConsumerGroup, Consumers, MemberSessions, Producers
from sparrowmq.broker.name_servers import BrokerRegistration, ClusterQueues
from sparrowmq.broker.offset_saving import OffsetSaving
from sparrowmq.broker.positions import Positions
from sparrowmq.broker.queue_locks import QueueLocks
from sparrowmq.broker.rebalance_notices import RebalanceNotices
from sparrowmq.broker.replication.read_places import ReadPlaces, SlaveReads
from sparrowmq.broker.replication.replication import Replication
from sparrowmq.broker.replication.status import ReplicationFigures
from sparrowmq.broker.reports import Slices
from sparrowmq.broker.sampling import Sampling
from sparrowmq.broker.statistics import Statistics
from sparrowmq.broker.table_saving import TableSaving
from sparrowmq.broker.tables import BrokerTables
from sparrowmq.broker.topics import Topics
from sparrowmq.broker.traffic.traffic import Traffic
from sparrowmq.broker.watched_groups import WatchedGroups
from sparrowmq.clock import Clock
from sparrowmq.disk.disk import Disk
from sparrowmq.net.connection import Connection
from sparrowmq.net.tasks import Uncancellable
from sparrowmq.net.workers import Workers
from sparrowmq.protocol.body import DataVersion
from sparrowmq.protocol.ids import UniqueIds
from sparrowmq.protocol.properties import CLUSTER, encode_properties
from sparrowmq.protocol.trace import TRACE_FIELDS
from sparrowmq.store.store import Store

if TYPE_CHECKING:
    from sparrowmq.broker.delivery.dead_letter_log import DeadLetterLog
    from sparrowmq.broker.delivery.delivery import Delivery
    from sparrowmq.broker.replication.table_following import TableFollowing


class BrokerState(Enum):
    """What a broker does for its clients; it only moves forward."""

    STARTING = "starting"
    """Its parts are open, and it answers as soon as it is served."""
    SERVING = "serving"
    DRAINING = "draining"
    """Everything is answered but pulls, which are rejected: `shutdown` says why."""
    STOPPED = "stopped"
    """Everything is saved and closed."""


@dataclass(slots=True, kw_only=True)
class Broker:
    """One broker's state."""

    config: BrokerConfig
    clock: Clock
    """The time of day, for everything that is stamped and nothing that is measured."""
    monotonic: Clock
    """Measures how long something takes or lasts, whatever the clock is set to meanwhile."""
    rng: random.Random
    log: logging.Logger
    workers: Workers
    store: Store
    topics: Topics
    groups: Groups
    offsets: ConsumerOffsets
    arrivals: Arrivals
    durability: Durability
    replication: Replication
    reads: ReadPlaces
    """Which broker the answers to pulls suggest."""
    slave_reads: SlaveReads | None
    """The same on a slave; None on a master."""
    positions: Positions
    delivery: Delivery
    dead_letters: DeadLetterLog
    drain: Drain
    """Whether it is being emptied."""
    locks: QueueLocks
    request_modes: RequestModes
    saving: TableSaving
    """Of topics, groups, request modes and steps of the clock."""
    tables: BrokerTables
    """Their files, and those of consumer offsets and subscriptions."""
    offset_saving: OffsetSaving
    statistics: Statistics
    cluster_queues: ClusterQueues
    disk: Disk
    """Only to report how full it is; files belong to the store."""
    unique_ids: UniqueIds
    consumers: Consumers
    notices: RebalanceNotices
    watched: WatchedGroups
    """Groups that rebalance or have a quota."""
    uncancellable: Uncancellable
    """Saves and flushes that are under way."""
    port: int
    """The one it listens on, also where the configuration leaves the choice to the system."""
    state: BrokerState = BrokerState.STARTING
    send_refusal: str = ""
    """Why sends are refused until further notice; empty when they are not. See `refuse_sends`."""
    _send_refusals: dict[str, str] = field(default_factory=dict)
    """By holder: one that lets go must not admit sends that another one refuses."""
    rejected_pulls: int = 0
    """Pulls that were rejected because the broker is draining."""
    slices: Slices = field(default_factory=Slices)
    """The loop's time for reports."""
    sampling: Sampling = field(default_factory=Sampling)
    traffic: Traffic = field(default_factory=Traffic)
    """Limits of sends."""
    producers: Producers = field(default_factory=Producers)
    sessions: MemberSessions = field(default_factory=MemberSessions)
    config_version: DataVersion = field(default_factory=DataVersion)
    """Counts the changes operators made to `config` since the start."""
    table_following: TableFollowing | None = None
    """Of a slave."""
    is_handing_over: bool = False
    """A slave is about to take its role: what is changed now, the slave would never get."""
    busy_reason: str = ""
    """Why sends are refused with SYSTEM_BUSY now; empty when they are not."""
    replication_figures: ReplicationFigures = field(init=False)
    registration: BrokerRegistration = field(init=False)
    """With name servers; set before the first client comes."""
    address: str = field(init=False)
    """host:port that clients connect to."""
    store_host: bytes = field(init=False)
    """Address and port as every record carries them."""
    id_prefix: str = field(init=False)
    """The part of an offset id that names this broker."""
    cluster_property: bytes = field(init=False)
    """What the broker adds to a message: region, trace switch and the cluster it was sent to."""

    def __post_init__(self) -> None:
        self.replication_figures = ReplicationFigures(self.monotonic)
        self.address = self.config.address(self.port)
        self.store_host = self.store.config.store_host
        self.id_prefix = self.store_host.hex().upper()
        # As SendMessageProcessor adds them: tracing clients read the region.
        own_properties = TRACE_FIELDS | {CLUSTER: self.config.cluster_name}
        self.cluster_property = encode_properties(own_properties)

    def refuse_sends(self, holder: str, reason: str) -> None:
        """Refuse them for that reason until the same holder calls this with an empty one."""
        self._send_refusals.pop(holder, None)
        if reason:
            self._send_refusals[holder] = reason
        self.send_refusal = next(iter(self._send_refusals.values()), "")
        self.topics.forget_checked()

    def connection_closed(self, connection: Connection) -> None:
        """Everything a peer held or waited for ends with its connection."""
        self.arrivals.forget(connection)
        self.positions.forget(connection)
        self.sessions.forget(connection)
        self.producers.forget(connection)
        for group, member in self.consumers.forget(connection):
            self.member_left(group, member.client_id)

    def member_left(self, group: ConsumerGroup, client_id: str) -> None:
        """Free a member's queues, unless it lives on in another connection; notify the others."""
        if client_id not in group.client_ids:
            self.locks.unlock_all(group.name, client_id)
        self.notices.members_changed(group)
