"""The parts that handlers share. `server.py` opens them; nothing here does I/O itself."""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from sparrowmq.broker.arrivals import Arrivals
from sparrowmq.broker.cluster_queues import ClusterQueues
from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.consumer_offsets import ConsumerOffsets
from sparrowmq.broker.drain import Drain
from sparrowmq.broker.durability import Durability
from sparrowmq.broker.groups import Groups, RequestModes
from sparrowmq.broker.live_clients import ConsumerGroup, Consumers, MemberSessions, Producers
from sparrowmq.broker.offset_saving import OffsetSaving
from sparrowmq.broker.positions import Positions
from sparrowmq.broker.queue_locks import QueueLocks
from sparrowmq.broker.rebalance_notices import RebalanceNotices
from sparrowmq.broker.registration import BrokerRegistration
from sparrowmq.broker.replication.read_places import HeldReads, ReadPlaces, SlaveReads
from sparrowmq.broker.replication.replication import Replication
from sparrowmq.broker.replication.status import ReplicationFigures
from sparrowmq.broker.sampling import Sampling
from sparrowmq.broker.statistics import Statistics
from sparrowmq.broker.table_saving import TableSaving
from sparrowmq.broker.tables import BrokerTables
from sparrowmq.broker.topics import Topics
from sparrowmq.broker.traffic.limited_sends import Traffic
from sparrowmq.broker.watched_groups import WatchedGroups
from sparrowmq.clock import Clock
from sparrowmq.disk.disk import Disk
from sparrowmq.net.connection import Connection
from sparrowmq.net.slices import Slices
from sparrowmq.net.tasks import Uncancellable
from sparrowmq.net.workers import Workers
from sparrowmq.protocol.body import DataVersion
from sparrowmq.protocol.ids import UniqueIds
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.properties import CLUSTER, encode_properties
from sparrowmq.protocol.trace import TRACE_FIELDS
from sparrowmq.store.store import Store

if TYPE_CHECKING:
    from sparrowmq.broker.delivery.dead_letter_log import DeadLetterLog
    from sparrowmq.broker.delivery.delivery import Delivery
    from sparrowmq.broker.replication.table_following import TableFollowing


_LEAVING_PER_TURN = 512
"""Members of an ended connection that leave their groups in one turn of the loop, 5 µs each."""


class BrokerState(Enum):
    """The state of a broker for its clients; it only moves forward."""

    STARTING = "starting"
    """Its parts are open, and it answers as soon as connections are accepted."""
    SERVING = "serving"
    DRAINING = "draining"
    """Everything is answered except pulls, which are rejected: `shutdown` says why."""
    STOPPED = "stopped"
    """Everything is saved and closed."""


@dataclass(slots=True, kw_only=True)
class Broker:
    """One broker's state."""

    config: BrokerConfig
    clock: Clock
    """The time of day, for timestamps but never for measuring intervals."""
    monotonic: Clock
    """Measures intervals, unaffected when the clock is set."""
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
    """Decides which broker the answers to pulls suggest."""
    slave_reads: SlaveReads | None
    """The same on a slave; None on a master."""
    held_reads: HeldReads | None
    """Set on a broker that moves no position: a slave, or a master that waits for its slaves."""
    positions: Positions
    delivery: Delivery
    dead_letters: DeadLetterLog
    drain: Drain
    """Whether the broker is being emptied."""
    locks: QueueLocks
    request_modes: RequestModes
    saving: TableSaving
    """Saves topics, groups, request modes and steps of the clock."""
    tables: BrokerTables
    """The files of these tables, and of consumer offsets and subscriptions."""
    offset_saving: OffsetSaving
    statistics: Statistics
    cluster_queues: ClusterQueues
    disk: Disk
    """Only to report how full the disk is; its files belong to the store."""
    unique_ids: UniqueIds
    consumers: Consumers
    notices: RebalanceNotices
    watched: WatchedGroups
    """Groups that rebalance or have a quota."""
    uncancellable: Uncancellable
    """Saves and flushes that are in progress."""
    port: int
    """The port it listens on, even if the configuration lets the system choose."""
    state: BrokerState = BrokerState.STARTING
    send_refusal: str = ""
    """Why sends are refused until further notice; empty if they are not. See `refuse_sends`."""
    _send_refusals: dict[str, str] = field(default_factory=dict)
    """By holder: one holder that lets go must not admit sends that another one refuses."""
    rejected_pulls: int = 0
    """Pulls that were rejected because the broker is draining."""
    slices: Slices = field(default_factory=Slices)
    """Divides the loop's time for reports."""
    sampling: Sampling = field(default_factory=Sampling)
    traffic: Traffic = field(default_factory=Traffic)
    """Limits of sends."""
    producers: Producers = field(default_factory=Producers)
    sessions: MemberSessions = field(default_factory=MemberSessions)
    config_version: DataVersion = field(default_factory=DataVersion)
    """Counts the changes operators made to `config` since the start."""
    table_following: TableFollowing | None = None
    """Set on a slave only."""
    is_handing_over: bool = False
    """A slave is about to take over: it would never get changes made from now on."""
    busy_reason: str = ""
    """Why sends are refused with SYSTEM_BUSY now; empty if they are not."""
    replication_figures: ReplicationFigures = field(init=False)
    registration: BrokerRegistration = field(init=False)
    """Registration with name servers; set before the first client comes."""
    address: str = field(init=False)
    """The host:port to which clients connect."""
    store_host: bytes = field(init=False)
    """Address and port as every record carries them."""
    id_prefix: str = field(init=False)
    """The part of an offset id that names this broker."""
    cluster_property: bytes = field(init=False)
    """Properties that the broker adds to a message: region, trace switch and its cluster."""

    def __post_init__(self) -> None:
        self.replication_figures = ReplicationFigures(self.monotonic)
        self.address = self.config.address(self.port)
        self.store_host = self.store.config.store_host
        self.id_prefix = self.store_host.hex().upper()
        # As Apache's SendMessageProcessor adds them: tracing clients read the region.
        own_properties = TRACE_FIELDS | {CLUSTER: self.config.cluster_name}
        self.cluster_property = encode_properties(own_properties)

    def queue(self, topic: str, queue_id: int) -> MessageQueue:
        """A queue of this broker."""
        return MessageQueue(topic, self.config.broker_name, queue_id)

    def refuse_sends(self, holder: str, reason: str) -> None:
        """Refuse sends for that reason until the same holder passes an empty one."""
        self._send_refusals.pop(holder, None)
        if reason:
            self._send_refusals[holder] = reason
        self.send_refusal = next(iter(self._send_refusals.values()), "")
        self.topics.forget_checked()

    def connection_closed(self, connection: Connection) -> None:
        """Release everything that a peer held or waited for: its connection ended."""
        self.arrivals.forget(connection)
        self.positions.forget(connection)
        self.sessions.forget(connection)
        self.producers.forget(connection)
        self._remove_members(connection)

    def _remove_members(self, connection: Connection) -> None:
        for group, member in self.consumers.forget(connection, _LEAVING_PER_TURN):
            self.member_left(group, member.client_id)
        if self.consumers.has_member_on(connection):
            asyncio.get_running_loop().call_soon(self._remove_members, connection)

    def member_left(self, group: ConsumerGroup, client_id: str) -> None:
        """Free a member's queues, unless it has another live connection; notify the others."""
        if client_id not in group.client_ids:
            self.locks.unlock_all(group.name, client_id)
        self.notices.members_changed(group)
