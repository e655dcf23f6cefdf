"""`Admin`: inspects and changes a cluster, over the wire.

    async with Admin() as admin:
        await admin.create_topic("orders", queues=8)
        lag = await admin.lag("billing")
        print(lag.lag, [queue for queue in lag.queues if queue.is_out_of_range])

It works with SparrowMQ's and Apache's brokers. Queries go to all brokers at once; brokers that do
not answer in time are in the `errors` of a result, and a query fails only if no broker answers.
Changes raise PartlyDone if only some brokers made them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

from sparrowmq.admin import (
    all_progress,
    brokers,
    cleaning,
    clients,
    dead_letters,
    deliveries,
    drains,
    group_changes,
    group_rows,
    groups,
    health,
    lag,
    limits,
    members,
    message_traces,
    messages,
    migration,
    name_servers,
    offsets,
    rebalance,
    resends,
    resets,
    roles,
    server_settings,
    slaves,
    spreads,
    topic_figures,
    topic_readers,
    topic_tail,
    topics,
)
from sparrowmq.admin.brokers import BrokerInfo
from sparrowmq.admin.cleaning import Cleanable, CleanedPart
from sparrowmq.admin.clients import ClientRole, LiveClient
from sparrowmq.admin.cluster_calls import ClusterCalls
from sparrowmq.admin.dead_letters import DeadLetterCount
from sparrowmq.admin.deliveries import Delivered
from sparrowmq.admin.doctor.examine import FOR_S, MOST_EXAMINED, examine, order_of
from sparrowmq.admin.doctor.findings import Examination
from sparrowmq.admin.drain_status import BrokerDrain
from sparrowmq.admin.drains import GRACE_S
from sparrowmq.admin.group_rows import GroupRow
from sparrowmq.admin.groups import GroupInfo, GroupSubscription, subscriptions_of
from sparrowmq.admin.health import MOST_DISK, HealthCheck
from sparrowmq.admin.lag import GroupLag
from sparrowmq.admin.limits import DedupWindow, Limit
from sparrowmq.admin.members import GroupMember, LiveProducer
from sparrowmq.admin.message_traces import MessageTrace
from sparrowmq.admin.messages import MOST_FOUND
from sparrowmq.admin.migration import ClusterState, MigrationItem
from sparrowmq.admin.name_servers import NameServerInfo
from sparrowmq.admin.offsets import OffsetMove, ResetTo
from sparrowmq.admin.ranges import MessageRange, read_range
from sparrowmq.admin.rebalance import RebalanceInfo
from sparrowmq.admin.rebalance_simulation import SimulatedGroup
from sparrowmq.admin.resends import TO_GROUP, Resent
from sparrowmq.admin.reset_journal import ResetJournal, ResetRecord
from sparrowmq.admin.resets import JournaledReset
from sparrowmq.admin.roles import RoleChange
from sparrowmq.admin.sampled_progress import sampled_lags
from sparrowmq.admin.server_settings import ServerSettings
from sparrowmq.admin.slaves import SlaveInfo
from sparrowmq.admin.spreads import TopicShare
from sparrowmq.admin.topic_figures import Busy, TopicFigures
from sparrowmq.admin.topic_readers import TopicReader
from sparrowmq.admin.topics import TopicInfo
from sparrowmq.admin.values import Listing, SettingChange
from sparrowmq.admin.waiting import oldest_waiting, with_matching, with_waiting
from sparrowmq.admin.wanted_settings import Attributes
from sparrowmq.client.argument_checks import check_time
from sparrowmq.client.client import Client, core_of
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.config import ClientConfig
from sparrowmq.client.lifecycle import Block
from sparrowmq.client.setting_names import checks_setting_names
from sparrowmq.cluster_address import find_name_servers
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.route import ClusterInfo, TopicRoute

_TIMEOUT_S = 5.0


@checks_setting_names
class Admin(Block):
    """Operations through the name servers and brokers of one cluster.

    Every method may raise NameServersAway and NameServerRefusal; queries to brokers may raise
    NoBrokerAnswers; changes raise AdminError if nothing, and PartlyDone if not everything, changed.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        client: Client | None = None,
        timeout_s: float = _TIMEOUT_S,
        silence_s: float = 0.0,
    ) -> None:
        """Without `name_servers`, `sparrowmq.cluster_address` finds them. A given `client` brings
        its own, and its owner has to start and stop it. `timeout_s` limits each call to a broker; a
        broker that did not answer is not asked again for `silence_s`, and appears in `errors` at
        once. Raises ValueError.
        """
        if client is not None and name_servers is not None:
            raise ValueError("client and name_servers cannot be combined: the client has its own")
        check_time("timeout_s", timeout_s)
        self._owns_client = client is None
        if client is not None:
            core = core_of(client)
        elif name_servers is None:
            core = ClientCore(ClientConfig())
        else:
            core = ClientCore(ClientConfig(name_servers=find_name_servers(name_servers).addresses))
        origin = core.config.name_servers_from
        if silence_s:
            check_time("silence_s", silence_s)
        self._cluster = ClusterCalls(core, origin=origin, timeout_s=timeout_s, silence_s=silence_s)

    async def start(self) -> None:
        """Start, so that calls can be made; `async with` does it."""
        if self._owns_client:
            await self._cluster.client.start()

    async def stop(self) -> None:
        """Close all connections of its own client; `async with` does it."""
        if self._owns_client:
            await self._cluster.client.stop()

    async def _open(self) -> None:
        await self.start()

    # ---- clusters, brokers and producers

    async def cluster_info(self) -> ClusterInfo:
        """Clusters, their brokers and addresses, as the name servers know them."""
        return await self._cluster.info()

    async def clusters(self) -> dict[str, tuple[str, ...]]:
        """Names of the brokers of each cluster."""
        return await brokers.clusters(self._cluster)

    async def brokers(self) -> Listing[BrokerInfo]:
        """All brokers with role, address, version and figures. A broker that does not answer has no
        figures, and is also in `errors`."""
        return await brokers.brokers(self._cluster)

    async def broker_config(self, broker: str) -> dict[str, str]:
        """The settings in force on a broker, by Apache's names. Raises NotFound."""
        return await brokers.config_of(self._cluster, broker)

    async def broker_settings(self, broker: str, *, broker_id: int = 0) -> ServerSettings:
        """Like `broker_config`, and which settings may change while the broker runs. A `broker_id`
        selects one of its slaves. Raises NotFound."""
        return await server_settings.broker_settings(self._cluster, broker, broker_id)

    async def change_broker_settings(
        self, broker: str, values: Mapping[str, str], *, broker_id: int = 0, dry_run: bool = False
    ) -> list[SettingChange]:
        """Change settings of a running broker, all or none. Returns what changed. SparrowMQ's
        brokers lose the changes when they restart. Raises ValueError, NotFound (also for a setting
        that the broker does not have), and AdminError for one that cannot change."""
        return await server_settings.change_broker_settings(
            self._cluster, broker, values, broker_id=broker_id, dry_run=dry_run
        )

    async def clean_broker(self, broker: str, what: Collection[Cleanable]) -> list[CleanedPart]:
        """Make a broker delete expired or unused data now. Raises NotFound."""
        return await cleaning.clean_broker(self._cluster, broker, what)

    async def health(
        self, *, max_lag: int | None = None, max_disk: float = MOST_DISK
    ) -> list[HealthCheck]:
        """Check that servers answer, masters take sends, slaves keep up and disks have room; with
        `max_lag` also that no group is further behind than that. Raises ValueError."""
        return await health.health(self._cluster, max_lag=max_lag, max_disk=max_disk)

    async def slaves(self, brokers: Sequence[str] = ()) -> Listing[SlaveInfo]:
        """The slaves that masters remember, including those that are away: of the named brokers, or
        of all. Raises NotFound."""
        return await slaves.slaves(self._cluster, brokers)

    async def retire_slave(
        self, broker: str, broker_id: int, *, dry_run: bool = False
    ) -> SlaveInfo:
        """Make a master forget a slave that will not come back. Returns what the master knew about
        it. Raises NotFound, and AdminError if the slave is following or its master waits for
        it."""
        return await slaves.retire_slave(self._cluster, broker, broker_id, dry_run=dry_run)

    async def hand_over(
        self, broker: str, slave_id: int | None = None, *, dry_run: bool = False
    ) -> RoleChange:
        """Make a master hand its role to a slave: the named one, or the one that has the most.
        Nothing is lost, and no send of a SparrowMQ client fails. The new master is registered when
        this returns. Raises NotFound, and AdminError if the roles stay as they are."""
        return await roles.hand_over(self._cluster, broker, slave_id, dry_run=dry_run)

    async def promote(
        self,
        broker: str,
        slave_id: int | None = None,
        *,
        accept_loss: str | None = None,
        address: str | None = None,
        dry_run: bool = False,
    ) -> RoleChange:
        """Make a slave the master: through the present master as in `hand_over`, or without it if
        it is gone and `accept_loss` is the broker's name. In that case the slave with the longest
        log is promoted unless one is named. `address` is for slaves that were started without a
        master and are not registered. Raises NotFound, AdminError if the roles stay as they are,
        and ValueError if `accept_loss` is another name."""
        return await roles.promote(
            self._cluster,
            broker,
            slave_id,
            accept_loss=accept_loss,
            address=address,
            dry_run=dry_run,
        )

    async def drain_broker(
        self,
        broker: str,
        *,
        ignore_groups: Collection[str] = (),
        leave_dead_letters: bool = False,
        grace_s: float = GRACE_S,
        timeout_s: float | None = None,
        progress: Callable[[BrokerDrain], None] | None = None,
        dry_run: bool = False,
    ) -> BrokerDrain:
        """Empty a broker, so that it can be stopped without losing messages.

        From now on the broker takes no new messages, also across restarts, and is registered
        without write permission. Connected producers get `grace_s` to switch to other brokers. Then
        this waits until all groups except `ignore_groups` and broadcasting ones have read what is
        there, and until delayed and half messages are done; it calls `progress` about every second
        (in the event loop's thread). At the end the broker unregisters from the name servers.

        Ending this call early, also by a timeout, leaves the broker read-only: call it again to
        continue, or call `resume_broker` to go back. Apache's brokers are only hidden from
        producers, by the name servers. `dry_run` checks and changes nothing.

        Raises NotFound; DrainUnfinished after `timeout_s`; and AdminError, with nothing changed,
        if a topic has no other broker that takes its messages, or if there are dead letters that
        `leave_dead_letters` does not accept."""
        return await drains.drain(
            self._cluster,
            broker,
            ignore_groups=ignore_groups,
            leave_dead_letters=leave_dead_letters,
            grace_s=grace_s,
            timeout_s=timeout_s,
            progress=progress,
            dry_run=dry_run,
        )

    async def resume_broker(self, broker: str, *, address: str | None = None) -> BrokerDrain:
        """Let a draining or drained broker take messages again. Returns its state before. A broker
        that has unregistered is found by the note that name servers keep, or at `address`. Raises
        NotFound."""
        return await drains.resume(self._cluster, broker, address)

    async def broker_drain(self, broker: str) -> BrokerDrain:
        """Whether a broker is being drained, and what it still has to finish before it can be
        stopped. Changes nothing. Raises NotFound."""
        return await drains.broker_drain(self._cluster, broker)

    async def drained_brokers(self) -> dict[str, str]:
        """Name → address of brokers that were drained and are not registered."""
        return await drains.drained_brokers(self._cluster)

    async def producers(self) -> Listing[LiveProducer]:
        """The live producers of all brokers."""
        return await members.producers(self._cluster)

    async def clients(
        self,
        *,
        role: ClientRole | None = None,
        group: str | None = None,
        topic: str | None = None,
    ) -> Listing[LiveClient]:
        """The live consumers and producers; for a topic only the consumers, since brokers do not
        know which producers send to it. Raises ValueError."""
        return await clients.clients(self._cluster, role=role, group=group, topic=topic)

    async def with_start_times(self, listed: Sequence[LiveClient]) -> list[LiveClient]:
        """The same clients, with `since` filled in for each consumer that answers."""
        return await clients.with_start_times(self._cluster, listed)

    # ---- name servers

    async def name_servers(self) -> Listing[NameServerInfo]:
        """Each name server and what it knows; those that do not answer are also in `errors`."""
        return await name_servers.name_servers(self._cluster)

    async def name_server_settings(self) -> Listing[ServerSettings]:
        """The settings in force on each name server."""
        answers = await server_settings.name_server_settings(self._cluster)
        return Listing(tuple(answers.by_broker.values()), answers.errors)

    async def change_name_server_settings(
        self, values: Mapping[str, str], *, dry_run: bool = False
    ) -> list[SettingChange]:
        """Change settings of all name servers. Returns what changed. Nothing changes unless all of
        them answer. SparrowMQ's name servers lose the changes when they restart. Raises ValueError,
        NotFound, AdminError like `change_broker_settings`."""
        return await server_settings.change_name_server_settings(
            self._cluster, values, dry_run=dry_run
        )

    async def key_values(self, namespace: str) -> dict[str, str]:
        """All keys and values in a namespace of the name servers. Raises NotFound."""
        return await name_servers.key_values(self._cluster, namespace)

    async def key_value(self, namespace: str, key: str) -> str:
        """The value of a key on the name servers. Raises NotFound."""
        return await name_servers.key_value(self._cluster, namespace, key)

    async def set_key_value(self, namespace: str, key: str, value: str) -> None:
        """Set a value on all name servers. Raises ValueError."""
        await name_servers.set_key_value(self._cluster, namespace, key, value)

    async def delete_key_value(self, namespace: str, key: str) -> None:
        """Remove a key from all name servers. Raises NotFound."""
        await name_servers.delete_key_value(self._cluster, namespace, key)

    # ---- topics

    async def topics(self, *, cluster: str | None = None) -> list[str]:
        """Names of all topics, or of the topics on a cluster's brokers, including RocketMQ's own
        and the retry and dead-letter topics of groups. Raises NotFound."""
        return await topics.topic_names(self._cluster, cluster)

    async def topic(self, topic: str) -> TopicInfo:
        """Settings per broker, and the offsets of every queue. Raises NotFound."""
        return await topics.describe_topic(self._cluster, topic)

    async def topic_figures(
        self, topics: Sequence[str], *, rates: bool = False
    ) -> Listing[TopicFigures]:
        """Settings, messages and sends per second of many topics, with one request for each and a
        few for all; `rates` adds deliveries and sizes, which take several more requests."""
        return await topic_figures.topic_figures(self._cluster, topics, rates=rates)

    async def busiest_topics(
        self, topics: Sequence[str], *, by: Busy = "in", most: int = 100
    ) -> Listing[TopicFigures]:
        """All figures of the busiest of these topics, the busiest first: by messages per second
        that are stored ("in") or delivered ("out"), or by size. Other topics are only asked about
        what decides. `most=0` returns all."""
        return await topic_figures.busiest_topics(self._cluster, topics, by=by, most=most)

    async def topic_readers(self, topic: str) -> Listing[TopicReader]:
        """The groups that read a topic, with their lag and their live members. Raises NotFound."""
        return await topic_readers.topic_readers(self._cluster, topic)

    async def route(self, topic: str) -> TopicRoute:
        """Where clients find a topic. Raises NotFound."""
        return await self._cluster.route(topic)

    async def create_topic(
        self,
        topic: str,
        *,
        queues: int | None = None,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | None = None,
        order: bool | None = None,
        attributes: Attributes | None = None,
        brokers: Sequence[str] = (),
        cluster: str | None = None,
        replace: bool = True,
        dry_run: bool = False,
    ) -> list[str]:
        """Create a topic on brokers, a cluster, or everywhere. Returns the names of the brokers
        that have it.

        Producers and consumers find it when this returns. A topic that exists gets these settings;
        with `replace=False` it stays as it is, and AlreadyExists is raised if it differs in what is
        given. `dry_run` only checks. `queues` counts per broker, and holds for reading and writing
        unless those are given; what is not given is 8 queues, for reading and writing, not ordered.
        Raises ValueError, NotFound.
        """
        wanted = topics.wanted_topic(
            queues=queues,
            read_queues=read_queues,
            write_queues=write_queues,
            perm=perm,
            order=order,
            attributes=attributes,
        )
        topics.check_new(topic, wanted)
        return await topics.create_topic(
            self._cluster,
            topic,
            wanted,
            brokers=brokers,
            of=cluster,
            replace=replace,
            dry_run=dry_run,
        )

    async def update_topic(
        self,
        topic: str,
        *,
        queues: int | None = None,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | None = None,
        order: bool | None = None,
        attributes: Attributes | None = None,
        brokers: Sequence[str] = (),
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> list[SettingChange]:
        """Change the given settings on all brokers that have the topic, or on those of them that
        are named or in a cluster; an attribute that is None is removed. Nothing changes if one of
        the brokers hangs (is reachable but does not answer), or in a dry run. `queues` applies to
        reading and writing unless those are given.

        Messages in queues that readers no longer see are not delivered. Raises NotFound.
        """
        wanted = topics.wanted_topic(
            queues=queues,
            read_queues=read_queues,
            write_queues=write_queues,
            perm=perm,
            order=order,
            attributes=attributes,
        )
        return await topics.update_topic(
            self._cluster, topic, wanted, brokers=brokers, of=cluster, dry_run=dry_run
        )

    async def spread_topic(
        self,
        topic: str,
        brokers: Sequence[str],
        *,
        accept_disorder: bool = False,
        dry_run: bool = False,
    ) -> list[TopicShare]:
        """Put a topic on more brokers, with its present settings; each new broker gets as many
        queues as the broker that has the most. `accept_disorder` is required for a topic that is
        marked as ordered or has a single queue, because keys move to other queues. Raises
        ValueError, NotFound; AdminError, with nothing changed, for a broker that already has the
        topic or is draining."""
        return await spreads.spread_topic(
            self._cluster, topic, brokers, accept_disorder=accept_disorder, dry_run=dry_run
        )

    async def delete_topic(self, topic: str, *, missing_ok: bool = False) -> list[str]:
        """Delete a topic with its messages and every group's progress in it, on all brokers, or on
        none if one hangs. Raises NotFound if no broker has it, unless `missing_ok`. An interrupted
        call can be repeated."""
        return await topics.delete_topic(self._cluster, topic, missing_ok=missing_ok)

    # ---- limits

    async def limits(self) -> Listing[Limit]:
        """All quotas and largest backlogs with their usage, summed over the brokers that have them.
        Apache's brokers have none."""
        return await limits.limits(self._cluster)

    async def dedup_windows(self) -> Listing[DedupWindow]:
        """The de-duplicated topics, and how much each broker remembers of them."""
        return await limits.dedup_windows(self._cluster)

    async def set_quota(
        self,
        scope: str,
        name: str = "*",
        *,
        messages: int | None = None,
        bytes: int | None = None,
        brokers: Sequence[str] = (),
        dry_run: bool = False,
    ) -> list[SettingChange]:
        """Set a quota for a `topic`, `producer-group`, `consumer-group` or `client`: what each
        broker accepts, or delivers to the consumer group, in messages and bytes per second. A limit
        that is not given stays as it is. Raises ValueError, and NotFound for an unknown topic or
        group."""
        return await limits.set_quota(
            self._cluster,
            scope,
            name,
            messages=messages,
            size_bytes=bytes,
            brokers=brokers,
            dry_run=dry_run,
        )

    async def set_backlog(
        self,
        topic: str,
        groups: Sequence[str],
        *,
        messages: int | None = None,
        seconds: int | None = None,
        action: str = "refuse",
        brokers: Sequence[str] = (),
        dry_run: bool = False,
    ) -> list[SettingChange]:
        """Make each broker refuse or slow down sends to a topic once one of these groups is this
        many messages or seconds behind, until it is back at 80 % of that. Raises ValueError, and
        NotFound for an unknown topic or group."""
        return await limits.set_backlog(
            self._cluster,
            topic,
            groups,
            messages=messages,
            seconds=seconds,
            action=action,
            brokers=brokers,
            dry_run=dry_run,
        )

    async def unset_limits(
        self,
        scope: str,
        name: str = "*",
        *,
        which: Collection[str] = (),
        brokers: Sequence[str] = (),
        dry_run: bool = False,
    ) -> list[SettingChange]:
        """Remove limits: those in `which` (messages, bytes, backlog), or all of them. Raises
        ValueError, and NotFound for an unknown topic or group."""
        return await limits.unset_limits(
            self._cluster, scope, name, which=which, brokers=brokers, dry_run=dry_run
        )

    # ---- groups

    async def groups(self) -> Listing[str]:
        """Names of all consumer groups, including those of RocketMQ's own tools."""
        return await groups.group_names(self._cluster)

    async def group_rows(self, names: Sequence[str], *, waiting: bool = True) -> Listing[GroupRow]:
        """One row per group, for a list: members, topics, lag and, with `waiting`, since when the
        oldest message has been waiting. An unknown group has a row without figures."""
        return await group_rows.group_rows(self._cluster, names, waiting=waiting)

    async def group(self, group: str) -> GroupInfo:
        """Settings per broker, members, and what each member subscribes to. Raises NotFound."""
        return await groups.describe_group(self._cluster, group)

    async def members(self, group: str) -> Listing[GroupMember]:
        """The live members and what each reports about itself; none for an offline group."""
        return await members.members(self._cluster, group)

    async def member(self, group: str, client_id: str, *, stacks: bool = False) -> GroupMember:
        """One live member, on request with the stacks of its threads and tasks. Raises NotFound,
        and AdminError if the member does not answer."""
        return await members.member(self._cluster, group, client_id, stacks=stacks)

    async def rebalance(self, group: str, topic: str | None = None) -> RebalanceInfo:
        """Which member owns which queue of a group, since when and why, and what moved recently: in
        one topic, or in all that live members subscribe to. Raises NotFound."""
        return await rebalance.explain(self._cluster, group, topic)

    async def simulated_group(self, group: str, topic: str | None = None) -> SimulatedGroup:
        """A live group in the form that `rebalance_simulation.simulate` takes. Raises NotFound, and
        AdminError for a group without live members."""
        return await rebalance.live_group(self._cluster, group, topic)

    async def create_group(
        self,
        group: str,
        *,
        retries: int | None = None,
        retry_queues: int | None = None,
        may_consume: bool | None = None,
        may_broadcast: bool | None = None,
        orderly: bool | None = None,
        attributes: Attributes | None = None,
        brokers: Sequence[str] = (),
        cluster: str | None = None,
        replace: bool = True,
        dry_run: bool = False,
    ) -> list[str]:
        """Create a group on brokers, a cluster, or everywhere. Returns the names of the brokers
        that have it.

        A group that exists gets these settings; with `replace=False` it stays as it is, and
        AlreadyExists is raised if it differs in what is given. `dry_run` only checks. What is not
        given is 16 retries, one retry queue, consuming and broadcasting allowed, not orderly. Most
        clusters create groups when their first member comes. Raises ValueError, NotFound.
        """
        wanted = group_changes.wanted_group(
            may_consume=may_consume,
            may_broadcast=may_broadcast,
            orderly=orderly,
            retries=retries,
            retry_queues=retry_queues,
            attributes=attributes,
        )
        group_changes.check_new(group, wanted)
        return await group_changes.create_group(
            self._cluster,
            group,
            wanted,
            brokers=brokers,
            of=cluster,
            replace=replace,
            dry_run=dry_run,
        )

    async def update_group(
        self,
        group: str,
        *,
        retries: int | None = None,
        retry_queues: int | None = None,
        may_consume: bool | None = None,
        may_broadcast: bool | None = None,
        orderly: bool | None = None,
        attributes: Attributes | None = None,
        brokers: Sequence[str] = (),
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> list[SettingChange]:
        """Change the given settings on all brokers that have the group, or on those of them that
        are named or in a cluster; an attribute that is None is removed. Nothing changes if one of
        the brokers hangs (is reachable but does not answer), or in a dry run. Raises NotFound."""
        wanted = group_changes.wanted_group(
            may_consume=may_consume,
            may_broadcast=may_broadcast,
            orderly=orderly,
            retries=retries,
            retry_queues=retry_queues,
            attributes=attributes,
        )
        return await group_changes.update_group(
            self._cluster, group, wanted, brokers=brokers, of=cluster, dry_run=dry_run
        )

    async def delete_group(
        self,
        group: str,
        *,
        keep_offsets: bool = False,
        force: bool = False,
        missing_ok: bool = False,
        dry_run: bool = False,
    ) -> list[str]:
        """Delete a group and its progress on all brokers, or on none if one hangs; its retry and
        dead-letter topics stay. `dry_run` only checks.

        Raises NotFound if no broker has it, unless `missing_ok`, and InUse if it has live members,
        unless `force`.
        """
        return await group_changes.delete_group(
            self._cluster,
            group,
            keep_offsets=keep_offsets,
            force=force,
            missing_ok=missing_ok,
            dry_run=dry_run,
        )

    async def pause_group(
        self, group: str, *, topic: str | None = None, dry_run: bool = False
    ) -> list[str]:
        """Make brokers refuse a group's pulls, in all topics or in one; `dry_run` only checks.
        Returns the names of the brokers. Members still handle what they have already fetched.
        Raises NotFound."""
        return await group_changes.set_paused(
            self._cluster, group, topic, paused=True, dry_run=dry_run
        )

    async def resume_group(
        self, group: str, *, topic: str | None = None, dry_run: bool = False
    ) -> list[str]:
        """Make brokers serve the pulls of a paused group again; `dry_run` only checks. Returns the
        names of the brokers. Raises NotFound."""
        return await group_changes.set_paused(
            self._cluster, group, topic, paused=False, dry_run=dry_run
        )

    async def subscriptions(self, group: str) -> Listing[GroupSubscription]:
        """What the members of a group subscribe to, and where they differ. Raises NotFound."""
        found = await groups.describe_group(self._cluster, group)
        return Listing(tuple(subscriptions_of(found)), found.errors)

    # ---- progress

    async def lag(
        self,
        group: str,
        topic: str | None = None,
        *,
        owners: bool = True,
        waiting: bool = False,
        matching: bool = False,
    ) -> GroupLag:
        """How far a group is in each queue, and which member holds it. `owners=False` skips the
        requests to members. `waiting` adds since when the oldest message has been waiting,
        `matching` how many messages match a tag filter: one or more requests per queue. Raises
        NotFound."""
        found = await lag.group_lag(self._cluster, group, topic, owners=owners)
        if waiting:
            found = await with_waiting(self._cluster, found)
        return await with_matching(self._cluster, found) if matching else found

    async def lags(self, groups: Sequence[str], *, owners: bool = False) -> list[GroupLag]:
        """Like `lag` for each of these groups, with few requests for all of them together; those
        that no broker knows are left out. Raises AdminError."""
        return await all_progress.group_lags(self._cluster, groups, owners=owners)

    async def sampled_lags(self, groups: Collection[str]) -> list[GroupLag]:
        """The lag of these groups, without owners, in a number of requests that does not grow with
        theirs, to be asked again and again. Left out are those of which that much is not known
        this way, such as groups without progress. Raises AdminError."""
        return await sampled_lags(self._cluster, groups)

    async def with_waiting(self, lag: GroupLag) -> GroupLag:
        """The same lag with what `waiting` and `matching` add to it."""
        return await with_matching(self._cluster, await with_waiting(self._cluster, lag))

    async def oldest_waiting(self, lag: GroupLag) -> datetime | None:
        """When the message that has been waiting longest was stored; None if none waits, or if that
        is not known of a queue. It takes fewer requests than `with_waiting`. Raises AdminError."""
        return await oldest_waiting(self._cluster, lag)

    async def reset_offsets(
        self,
        group: str,
        topic: str,
        to: ResetTo,
        *,
        queues: Collection[MessageQueue] = (),
        dry_run: bool = False,
    ) -> list[OffsetMove]:
        """Make a group, live members included, continue elsewhere in a topic. Returns every queue
        with its offset before and after.

        `to` is "earliest", "latest", a datetime with a zone or milliseconds (the first message
        stored then or later), MoveBy(n) relative to the current offset, or an offset for each queue
        to move. If `queues` is given, only those move. Nothing moves unless all brokers concerned
        answer, or in a dry run. Raises ValueError, NotFound, PartlyReset, and InUse for single
        queues of a live group on brokers that cannot move them (Apache's before 5.2).
        """
        return await offsets.reset_offsets(
            self._cluster, group, topic, to, queues=queues, dry_run=dry_run
        )

    async def reset_with_journal(
        self,
        group: str,
        topic: str,
        to: ResetTo,
        *,
        journal: ResetJournal,
        who: str,
        queues: Collection[MessageQueue] = (),
        dry_run: bool = False,
    ) -> JournaledReset:
        """Like `reset_offsets`, but recorded in a journal before the first offset moves, so that
        `undo_reset` can put the group back. `who` is the name in the record."""
        return await resets.journaled_reset(
            self._cluster,
            group,
            topic,
            to,
            queues=queues,
            journal=journal,
            who=who,
            dry_run=dry_run,
        )

    async def last_reset(self, group: str, *, journal: ResetJournal) -> ResetRecord | None:
        """The reset that an undo would revert: the group's last one in this cluster that has not
        been undone, or None."""
        return journal.last(group, await resets.this_cluster(self._cluster))

    async def undo_reset(
        self,
        group: str,
        reset_id: str | None = None,
        *,
        journal: ResetJournal,
        who: str,
        force: bool = False,
        dry_run: bool = False,
    ) -> JournaledReset:
        """Put a group back to where it was before a journaled reset: the one with this id, or the
        last one. Queues in which it had no progress go to their oldest message. Raises NotFound,
        and, unless `force`, AdminError if members have moved on since, or if the named reset was
        made in another cluster of this name."""
        return await resets.undo_reset(
            self._cluster,
            group,
            reset_id,
            journal=journal,
            who=who,
            force=force,
            dry_run=dry_run,
        )

    async def clone_offsets(
        self, source: str, target: str, *, topic: str | None = None, dry_run: bool = False
    ) -> list[OffsetMove]:
        """Give a group the progress of another, in one topic or in all. Raises NotFound, InUse if
        the target has live members, PartlyReset."""
        return await offsets.clone_offsets(self._cluster, source, target, topic, dry_run=dry_run)

    async def offset_at(self, queue: MessageQueue, when: datetime | int) -> int:
        """The offset of a queue's first message stored at or after a time."""
        return await offsets.offset_at(self._cluster, queue, when)

    # ---- moving to another cluster

    async def export_state(self, *, topics: str = "*", groups: str = "*") -> ClusterState:
        """Topics and groups whose names match the patterns, with their settings and progress but
        without messages. Brokers that did not answer are in `errors`."""
        where = ", ".join(self._cluster.client.name_servers.addresses)
        return await migration.export_state(self._cluster, where, topics=topics, groups=groups)

    async def import_state(
        self, state: ClusterState, *, dry_run: bool = False
    ) -> list[MigrationItem]:
        """Create in this cluster what it lacks of another's state. Returns the outcome for each
        topic, group and progress. What already exists is not changed, so a call can be repeated.
        Raises AdminError, before anything is changed, unless every broker answers."""
        return await migration.import_state(self._cluster, state, dry_run=dry_run)

    # ---- messages

    async def message(self, message_id: str, topic: str | None = None) -> MessageExt:
        """A message by its unique id, which needs the topic, or by its offset id. Raises NotFound,
        NotAllAnswered while a broker that did not answer may have it, and ValueError for an invalid
        id."""
        return await messages.message(self._cluster, message_id, topic)

    async def find_messages(
        self,
        topic: str,
        key: str,
        *,
        begin: datetime | int | None = None,
        end: datetime | int | None = None,
        limit: int = MOST_FOUND,
    ) -> Listing[MessageExt]:
        """Messages with a key that were stored in a time range, newest first; `is_cut` if there are
        more. Raises NotFound."""
        return await messages.find_messages(
            self._cluster, topic, key, begin=begin, end=end, limit=limit
        )

    async def read_message(self, queue: MessageQueue, offset: int) -> MessageExt:
        """The message at an offset of a queue; no group's progress changes. Raises NotFound."""
        return await messages.read_message(self._cluster, queue, offset)

    async def read_messages(
        self, queue: MessageQueue, offset: int, *, limit: int = 32
    ) -> Listing[MessageExt]:
        """Messages from an offset on, in order; `is_cut` if the queue has more. Brokers may return
        fewer than `limit`. Raises NotFound."""
        return await messages.read_messages(self._cluster, queue, offset, limit=limit)

    # ---- the doctor

    async def doctor(
        self,
        about: str | None = None,
        name: str | None = None,
        *,
        topic: str | None = None,
        for_s: float = FOR_S,
        limit: int = MOST_EXAMINED,
        topics_first: Sequence[str] = (),
        groups_first: Sequence[str] = (),
    ) -> Examination:
        """What is wrong, why, and what to do: with the "topic", "group", "message" or "cluster" of
        that name, or with everything. Nothing is changed.

        A message needs its `topic`, unless its id is an offset id. Groups are examined twice,
        `for_s` apart. When examining everything, `limit` topics and groups are examined, 0
        means all; `topics_first` and `groups_first` are examined before others. Brokers and name
        servers that do not answer are findings. Raises ValueError, NotFound.
        """
        order = order_of(
            about,
            name,
            topic=topic,
            for_s=for_s,
            limit=limit,
            topics_first=topics_first,
            groups_first=groups_first,
        )
        return await examine(self._cluster, order)

    async def messages_between(
        self,
        topic: str,
        *,
        since: datetime | int | None = None,
        until: datetime | int | None = None,
        queue: MessageQueue | None = None,
        newest: bool = False,
        limit: int = 20,
    ) -> MessageRange:
        """The first messages of a topic or queue that were stored in a time range, or the last
        ones, ordered by time; `total` is how many there are. Raises ValueError, NotFound,
        NotReadable."""
        return await read_range(
            self._cluster,
            topic,
            since=since,
            until=until,
            queue=queue,
            newest=newest,
            limit=limit,
        )

    async def tail(
        self,
        topic: str,
        on_message: Callable[[MessageExt], bool],
        *,
        expression: str = "*",
        queue: MessageQueue | None = None,
        since: datetime | int | None = None,
        interval_s: float = 0.2,
    ) -> None:
        """Call `on_message` with each message stored in a topic from now on, or since a time, until
        it returns False. No group is involved, and no progress is kept. Raises ValueError,
        NotFound, NotReadable, and AdminError when no broker answers any more."""
        await topic_tail.tail(
            self._cluster,
            topic,
            on_message,
            expression=expression,
            queue=queue,
            since=since,
            interval_s=interval_s,
        )

    async def trace(self, message_id: str, topic: str | None = None) -> MessageTrace:
        """What clients have reported about a message, and how far each group of its topic is with
        it. The message itself is looked up in `topic`, or in the topic that the trace names. Raises
        ValueError, and NotFound if there is neither a trace nor the message."""
        return await message_traces.trace(self._cluster, message_id, topic)

    async def deliver(
        self,
        message_id: str,
        group: str,
        *,
        topic: str | None = None,
        client_id: str | None = None,
        dry_run: bool = False,
    ) -> Delivered:
        """Make a live member handle a stored message now: the first member unless one is named.
        Progress stays as it is. `dry_run` only finds both. Raises NotFound, and AdminError if the
        member does not answer."""
        return await deliveries.deliver(
            self._cluster, message_id, group, topic=topic, client_id=client_id, dry_run=dry_run
        )

    async def resume_transaction(self, message_id: str) -> MessageExt:
        """Make a broker ask the producers again about a transaction that it has set aside. Returns
        the message, which stays in TRANS_CHECK_MAX_TIME_TOPIC; `message_id` is its offset id there.
        Raises ValueError, NotFound, AdminError."""
        return await deliveries.resume_transaction(self._cluster, message_id)

    # ---- dead letters

    async def dead_letter_groups(self) -> list[str]:
        """Names of the groups that have, or had, dead letters."""
        return await dead_letters.dead_letter_groups(self._cluster)

    async def count_dead_letters(self, group: str, recent: datetime | int) -> DeadLetterCount:
        """How many dead letters a group has, how old they are, and how many arrived since `recent`.
        Raises NotFound."""
        return await dead_letters.count_dead_letters(self._cluster, group, recent)

    async def dead_letters(
        self,
        group: str,
        *,
        since: datetime | int | None = None,
        until: datetime | int | None = None,
        key: str | None = None,
        newest: bool = True,
        limit: int = 20,
    ) -> MessageRange:
        """The newest dead letters of a group in a time range, or the oldest; with a key, only those
        that have it. Ordered by time. Raises ValueError, NotFound, NotReadable."""
        return await dead_letters.read_dead_letters(
            self._cluster, group, since=since, until=until, key=key, newest=newest, limit=limit
        )

    async def resend_dead_letters(
        self,
        group: str,
        *,
        ids: Collection[str] = (),
        since: datetime | int | None = None,
        until: datetime | int | None = None,
        to: str = TO_GROUP,
        rate: float | None = None,
        dry_run: bool = False,
        on_result: Callable[[Resent], None] | None = None,
    ) -> list[Resent]:
        """Send dead letters again: those with these ids, or else all in a time range. `to` is
        "group" (only the group that failed gets them), "topic" (every group of the topic they came
        from does), or the name of another topic; `rate` is the most per second.

        Skips dead letters that were sent before, no matter from where. `on_result` is called for
        each when it is done. Raises ValueError, NotFound, NotReadable, and AdminError before
        anything is sent.
        """
        letters = dead_letters.select_dead_letters(
            self._cluster, group, ids=ids, since=since, until=until
        )
        return await resends.resend_all(
            self._cluster, group, letters, to=to, rate=rate, dry_run=dry_run, on_result=on_result
        )

    async def export_dead_letters(
        self,
        group: str,
        write: Callable[[str], object],
        *,
        since: datetime | int | None = None,
        until: datetime | int | None = None,
    ) -> int:
        """Pass each dead letter of a time range to `write` as one line of JSON. Returns how many
        there were. If `write` returns an awaitable, it is awaited, so that reading does not run
        ahead of writing. Raises ValueError, NotFound, NotReadable, and AdminError if a broker does
        not answer."""
        return await dead_letters.export_dead_letters(
            self._cluster, group, write, since=since, until=until
        )
