"""The parts that handlers share. `server.py` makes them; nothing here does I/O by itself."""

from __future__ import annotations

import logging
import random
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparrowmq.broker.arrivals import Arrivals
from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.consumer_offsets import ConsumerOffsets
from sparrowmq.broker.durability import Durability
from sparrowmq.broker.groups import Groups, RequestModes
from sparrowmq.broker.live_clients import ConsumerGroup, Consumers, Producers, Sessions
from sparrowmq.broker.name_servers import TopicRoutes
from sparrowmq.broker.offset_saving import OffsetSaving
from sparrowmq.broker.positions import Positions
from sparrowmq.broker.queue_locks import QueueLocks
from sparrowmq.broker.table_saving import TableSaving
from sparrowmq.broker.topics import Topics
from sparrowmq.clock import Clock
from sparrowmq.disk.disk import Disk
from sparrowmq.net.connection import Connection
from sparrowmq.net.errors import ConnectionLost
from sparrowmq.net.tasks import WholeSteps
from sparrowmq.net.workers import Workers
from sparrowmq.protocol.body import DataVersion
from sparrowmq.protocol.headers.clients import NotifyConsumerIdsChanged
from sparrowmq.protocol.ids import UniqueIds
from sparrowmq.store.store import Store

if TYPE_CHECKING:
    from sparrowmq.broker.delivery.delivery import Delivery
    from sparrowmq.broker.statistics import Statistics


@dataclass(slots=True, kw_only=True)
class Broker:
    """One broker's state."""

    config: BrokerConfig
    clock: Clock
    """What time it is, for everything that is stamped, and for nothing that is measured."""
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
    positions: Positions
    delivery: Delivery
    locks: QueueLocks
    request_modes: RequestModes
    saving: TableSaving
    """Of topics, groups and request modes."""
    offset_saving: OffsetSaving
    statistics: Statistics
    topic_routes: TopicRoutes
    disk: Disk
    """Only to tell how full it is; files are the store's business."""
    address: str
    """host:port as clients are told."""
    unique_ids: UniqueIds
    store_host: bytes
    """Address and port as every record carries them."""
    id_prefix: str
    """The part of an offset id that names this broker."""
    cluster_property: bytes
    """What the broker adds to a message: region, trace switch and the cluster it was sent to."""
    consumers: Consumers = field(default_factory=Consumers)
    producers: Producers = field(default_factory=Producers)
    sessions: Sessions = field(default_factory=Sessions)
    steps: WholeSteps = field(default_factory=WholeSteps)
    """Saves and flushes that are under way."""
    changing: dict[str, int] = field(default_factory=dict)
    """Groups whose members were told lately that somebody came or went, and when
    (monotonic)."""
    config_version: DataVersion = field(default_factory=DataVersion)
    """Counts the changes operators made to `config` since the start."""
    busy_reason: str = ""
    """Why sends are refused with SYSTEM_BUSY now; empty when they are not."""

    def connection_closed(self, connection: Connection) -> None:
        """Everything a peer held or waited for ends with its connection."""
        self.arrivals.forget(connection)
        self.positions.forget(connection)
        self.sessions.forget(connection)
        self.producers.forget(connection)
        for group, member in self.consumers.forget(connection):
            self.member_left(group, member.client_id)

    def member_left(self, group: ConsumerGroup, client_id: str) -> None:
        """Free a member's queues and tell the others, unless it lives on in another connection."""
        if client_id not in group.client_ids:
            self.locks.free_client(group.name, client_id)
        self.notify_members(group)

    def notify_members(self, group: ConsumerGroup) -> None:
        """Tell the members of a clustering group to rebalance now, where this is switched on."""
        if self._may_notify(group):
            self.changing[group.name] = self.monotonic()
            _notify(group.members, NotifyConsumerIdsChanged(consumer_group=group.name))

    def notify_member(self, group_name: str, connection: Connection) -> None:
        """Have one member rebalance now though nobody came or went, where notices are on."""
        group = self.consumers.group(group_name)
        if group is not None and connection in group.members and self._may_notify(group):
            _notify([connection], NotifyConsumerIdsChanged(consumer_group=group_name))

    def tell_freed(self, group_name: str, client_ids: Collection[str]) -> None:
        """Tell members that a queue is free now which they were refused, where notices are on."""
        group = self.consumers.group(group_name)
        if group is None or not self._may_notify(group):
            return
        waiting = [member for member in map(group.find, client_ids) if member is not None]
        notice = NotifyConsumerIdsChanged(consumer_group=group_name, is_freed=True)
        _notify([member.connection for member in waiting], notice)

    def _may_notify(self, group: ConsumerGroup) -> bool:
        config = self.groups.get(group.name)
        if group.is_broadcasting or not self.config.notify_consumer_ids_changed:
            return False
        return config is None or config.notify_consumer_ids_changed_enable


def _notify(connections: Iterable[Connection], notice: NotifyConsumerIdsChanged) -> None:
    for connection in tuple(connections):
        try:
            connection.send_oneway(notice)
        except ConnectionLost:
            continue  # its own end is on the way and will be noticed
