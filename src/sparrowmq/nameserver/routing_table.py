"""The routing table: live brokers, their groups, and the topics they have.

    address ─ LiveBroker ─ BrokerGroup (by broker name) ─ topics, each with its QueueData

None of it is on disk: brokers register again every 30 seconds.
"""

from sparrowmq.nameserver.brokers import BrokerGroup, LiveBroker, Registration
from sparrowmq.nameserver.route_encoding import RouteAnswers
from sparrowmq.nameserver.topic_table import TopicTable
from sparrowmq.protocol.perm import PERM_READ_WRITE, PERM_WRITE
from sparrowmq.protocol.route import MASTER_ID, ClusterInfo


class RoutingTable:
    """Every change is one synchronous call, so readers never see half of one."""

    def __init__(self, route_cache_bytes: int = 0) -> None:
        self.encoded = RouteAnswers(route_cache_bytes)
        self.topics = TopicTable(self.encoded)
        self.groups: dict[str, BrokerGroup] = {}
        self.live: dict[str, LiveBroker] = {}

    # ---- registering

    def holder(self, broker_name: str, broker_id: int) -> LiveBroker | None:
        """The live broker of this name and id."""
        group = self.groups.get(broker_name)
        return group.members.get(broker_id) if group is not None else None

    def newer_holder(self, registration: Registration) -> LiveBroker | None:
        """The broker with the registration's name and id at another address and a newer state."""
        holder = self.holder(registration.broker_name, registration.broker_id)
        if holder is None or holder.address == registration.address:
            return None
        offered = registration.data_version.state_version
        return holder if holder.data_version.state_version > offered else None

    def rival_master(self, registration: Registration) -> LiveBroker | None:
        """The live master of the same name at another address.

        A registration with a higher state version has no rival: a controller elected that master.
        """
        holder = self.holder(registration.broker_name, MASTER_ID)
        if holder is None or registration.broker_id != MASTER_ID:
            return None
        is_elected = registration.data_version.state_version > holder.data_version.state_version
        return None if is_elected or holder.address == registration.address else holder

    def register(
        self,
        registration: Registration,
        session: object,
        now_ms: int,
        *,
        forget_missing: bool = False,
    ) -> LiveBroker | None:
        """Apply a registration; returns the broker's master if it is a slave and has one.

        `forget_missing` drops topics of the broker that the registration does not name.
        """
        before = self._make_room(registration)
        group = self._join(registration, before, session, now_ms)
        if _decides_topics(registration, group):
            # An unchanged table must not undo what an operator did here: wipe permissions.
            is_same = before is not None and before.data_version == registration.data_version
            self._take_topics(group, registration, only_missing=is_same)
            if forget_missing and not registration.mappings:
                self._forget_missing(registration)
        return group.master if registration.broker_id != MASTER_ID else None

    def _make_room(self, registration: Registration) -> LiveBroker | None:
        """Remove what the registration replaces; returns the record it continues, if any."""
        before = self.live.get(registration.address)
        name, number = registration.broker_name, registration.broker_id
        if before is not None and (before.broker_name, before.broker_id) != (name, number):
            # A slave became master, or a broker got a new name, before its old session ended.
            self._remove(before, replaced=before.broker_name == name)
            before = None
        holder = self.holder(name, number)
        if holder is not None and holder is not before:
            self._remove(holder, replaced=True)
        return before

    def _join(
        self,
        registration: Registration,
        before: LiveBroker | None,
        session: object,
        now_ms: int,
    ) -> BrokerGroup:
        name = registration.broker_name
        group = self.groups.setdefault(name, BrokerGroup(name, registration.cluster))
        said = (registration.cluster, bool(registration.acting_master), registration.zone_name)
        is_as_before = (group.cluster, group.acting_master, group.zone_name) == said
        group.cluster, group.acting_master, group.zone_name = said
        broker = LiveBroker(
            broker_name=name,
            broker_id=registration.broker_id,
            address=registration.address,
            ha_address=registration.ha_address,
            timeout_ms=registration.timeout_ms,
            data_version=registration.data_version,
            filter_servers=registration.filter_servers,
            session=session,
            last_seen_ms=now_ms,
        )
        group.members[broker.broker_id] = self.live[broker.address] = broker
        if before is None or before.filter_servers != broker.filter_servers or not is_as_before:
            self._forget_encoded(group)
        return group

    def _take_topics(
        self, group: BrokerGroup, registration: Registration, *, only_missing: bool
    ) -> None:
        # A slave standing in for a master only serves reads.
        stands_in = registration.broker_id != MASTER_ID and group.acting_master
        self.topics.put_all(
            group.name,
            registration.topics,
            only_missing=only_missing,
            change_perm=_without_write if stands_in else _unchanged,
        )
        if not only_missing:
            for topic, mapping in registration.mappings.items():
                self.topics.put_mapping(group.name, topic, mapping)

    def _forget_missing(self, registration: Registration) -> None:
        name = registration.broker_name
        named = {config.topic_name for config in registration.topics}
        for topic in self.topics.of_broker(name) - named:
            self.topics.drop(name, topic)

    # ---- leaving

    def drop(self, broker: LiveBroker) -> None:
        """Remove a broker; topics go with the last one of its name."""
        self._remove(broker, replaced=False)

    def _remove(self, broker: LiveBroker, *, replaced: bool) -> None:
        del self.live[broker.address]
        group = self.groups[broker.broker_name]
        del group.members[broker.broker_id]
        self._forget_encoded(group)
        if replaced:
            return
        if not group.members:
            self.topics.drop_broker(group.name)
            del self.groups[group.name]
        elif group.acting_master and group.master is None:
            self.topics.change_perms(group.name, _without_write)

    def of_session(self, session: object) -> list[LiveBroker]:
        """The brokers whose last registration came over this connection."""
        return [broker for broker in self.live.values() if broker.session is session]

    def silent(self, now_ms: int) -> list[LiveBroker]:
        """The brokers that have been silent for too long."""
        return [broker for broker in self.live.values() if broker.is_silent(now_ms)]

    def excuse_silence(self, lost_ms: int, now_ms: int) -> None:
        """Subtract time in which this process could hear no broker from every broker's silence."""
        for broker in self.live.values():
            broker.last_seen_ms = min(now_ms, broker.last_seen_ms + lost_ms)

    # ---- requests of operators

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, everywhere or in one cluster."""
        for name in tuple(self.topics.queues_of(topic)):
            if cluster is None or self.groups[name].cluster == cluster:
                self.topics.drop(name, topic)

    def wipe_write_perm(self, broker_name: str) -> int:
        """Remove the write permission from all topics of a broker name; returns their number."""
        return self.topics.change_perms(broker_name, _without_write)

    def add_write_perm(self, broker_name: str) -> int:
        """Make all topics of a broker name readable and writable; returns their number."""
        # Like Apache, whatever the permission was before.
        return self.topics.change_perms(broker_name, lambda perm: PERM_READ_WRITE)

    def clusters(self) -> dict[str, frozenset[str]]:
        """Cluster name to broker names."""
        names: dict[str, set[str]] = {}
        for group in self.groups.values():
            names.setdefault(group.cluster, set()).add(group.name)
        return {cluster: frozenset(brokers) for cluster, brokers in names.items()}

    def cluster_info(self) -> ClusterInfo:
        """All clusters and brokers."""
        brokers = {name: group.data() for name, group in self.groups.items()}
        return ClusterInfo(broker_addr_table=brokers, cluster_addr_table=self.clusters())

    def _forget_encoded(self, group: BrokerGroup) -> None:
        """Drop the encoded routes that show this group."""
        group.changed()
        self.encoded.forget_all(self.topics.of_broker(group.name))


def _decides_topics(registration: Registration, group: BrokerGroup) -> bool:
    """True for masters; from 5.0 on also for the member with the smallest id."""
    if registration.broker_id == MASTER_ID:
        return True
    return registration.acting_master is not None and registration.broker_id == min(group.members)


def _without_write(perm: int) -> int:
    return perm & ~PERM_WRITE


def _unchanged(perm: int) -> int:
    return perm
