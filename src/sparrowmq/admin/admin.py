"""`Admin`: looking at a cluster and changing it, over the wire.

    async with Admin() as admin:
        await admin.create_topic("orders", queues=8)
        lag = await admin.lag("billing")
        print(lag.lag, [queue for queue in lag.queues if queue.is_out_of_range])

It works against SparrowMQ's and Apache's brokers. Questions go to all brokers at once; brokers that
do not answer in time are in the `errors` of a result, and a question fails only if none answers.
Changes raise PartlyDone when they were made on some brokers only.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

from sparrowmq.admin import (
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
    tails,
    topic_figures,
    topic_readers,
    topics,
    transactions,
)
from sparrowmq.admin.brokers import BrokerInfo
from sparrowmq.admin.cleaning import Cleanable, CleanedPart
from sparrowmq.admin.clients import ClientRole, LiveClient
from sparrowmq.admin.cluster_calls import ClusterCalls
from sparrowmq.admin.dead_letters import DeadLetterCount
from sparrowmq.admin.deliveries import Delivered
from sparrowmq.admin.doctor.examine import FOR_S, MOST_EXAMINED, examine, order_of
from sparrowmq.admin.doctor.findings import Examination
from sparrowmq.admin.drain_looks import BrokerDrain
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
from sparrowmq.admin.server_settings import ServerSettings
from sparrowmq.admin.slaves import SlaveInfo
from sparrowmq.admin.spreads import TopicShare
from sparrowmq.admin.topic_figures import TopicFigures
from sparrowmq.admin.topic_readers import TopicReader
from sparrowmq.admin.topics import TopicInfo
from sparrowmq.admin.values import Listing, SettingChange
from sparrowmq.admin.waiting import with_matching, with_waiting
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

    Every method may raise NameServersAway and NameServerRefusal; questions to brokers
    NoBrokerAnswers; changes AdminError if nothing and PartlyDone if not everything was changed.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        client: Client | None = None,
        timeout_s: float = _TIMEOUT_S,
        silence_s: float = 0.0,
    ) -> None:
        """`name_servers` are found as `sparrowmq.cluster_address` says when left out. A given
        `client` has its own, and has to be started and stopped by its owner. `timeout_s` limits
        each call to a broker; one that did not answer is not asked again for `silence_s`, and is
        in `errors` at once. Raises ValueError.
        """
        if client is not None and name_servers is not None:
            raise ValueError("client and name_servers exclude each other: the client has its own")
        check_time("timeout_s", timeout_s)
        self._owns_client = client is None
        origin = "the client's settings"
        if client is None:
            servers = find_name_servers(name_servers)
            core, origin = ClientCore(ClientConfig(name_servers=servers.addresses)), servers.origin
        else:
            core = core_of(client)
        if silence_s:
            check_time("silence_s", silence_s)
        self._cluster = ClusterCalls(core, origin=origin, timeout_s=timeout_s, silence_s=silence_s)

    async def start(self) -> None:
        """Make calls possible; `async with` does it."""
        if self._owns_client:
            await self._cluster.client.start()

    async def stop(self) -> None:
        """End all connections; `async with` does it."""
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
        """All brokers with role, address, version and figures. One that does not answer has no
        figures and is in `errors` as well."""
        return await brokers.brokers(self._cluster)

    async def broker_config(self, broker: str) -> dict[str, str]:
        """The settings in force on a broker, by Apache's names. Raises NotFound."""
        return await brokers.config_of(self._cluster, broker)

    async def broker_settings(self, broker: str, *, broker_id: int = 0) -> ServerSettings:
        """The same, and which of them may change while the broker runs; of one of its slaves with
        a `broker_id`. Raises NotFound."""
        return await server_settings.broker_settings(self._cluster, broker, broker_id)

    async def change_broker_settings(
        self, broker: str, values: Mapping[str, str], *, broker_id: int = 0, dry_run: bool = False
    ) -> list[SettingChange]:
        """Change settings of a running broker, all or none; what changed. SparrowMQ's brokers
        forget it at their next start. Raises ValueError, NotFound, also for a setting that the
        broker does not have, and AdminError for one that cannot change."""
        return await server_settings.change_broker_settings(
            self._cluster, broker, values, broker_id=broker_id, dry_run=dry_run
        )

    async def clean_broker(self, broker: str, what: Collection[Cleanable]) -> list[CleanedPart]:
        """Let a broker delete what is expired or unused, now. Raises NotFound."""
        return await cleaning.clean_broker(self._cluster, broker, what)

    async def health(
        self, *, max_lag: int | None = None, max_disk: float = MOST_DISK
    ) -> list[HealthCheck]:
        """Whether servers answer, masters take sends, slaves keep up and disks have room; with
        `max_lag` also whether a group is further behind. Raises ValueError."""
        return await health.health(self._cluster, max_lag=max_lag, max_disk=max_disk)

    async def slaves(self, brokers: Sequence[str] = ()) -> Listing[SlaveInfo]:
        """The slaves that masters remember, also those that are away: of the brokers named, or of
        all. Raises NotFound."""
        return await slaves.slaves(self._cluster, brokers)

    async def retire_slave(
        self, broker: str, broker_id: int, *, dry_run: bool = False
    ) -> SlaveInfo:
        """Let a master forget a slave that will not come back; what it knew of it. Raises NotFound,
        and AdminError for a slave that follows, or that its master waits for."""
        return await slaves.retire_slave(self._cluster, broker, broker_id, dry_run=dry_run)

    async def hand_over(
        self, broker: str, slave_id: int | None = None, *, dry_run: bool = False
    ) -> RoleChange:
        """Let the master of a name give its role to a slave: the one named, or the one that has
        most. Nothing is lost, and no send of a SparrowMQ client fails. The new master is registered
        when this returns. Raises NotFound, and AdminError where the roles stay as they are."""
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
        """Make a slave the master: by the present master as in `hand_over`, or without it when it
        is gone and `accept_loss` is the broker's name. Then the slave with the longest log is
        taken unless one is named. `address` is for slaves that were started without a master, and
        are not registered. Raises NotFound, AdminError where the roles stay as they are, and
        ValueError if `accept_loss` is another name."""
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
        """Empty a broker, so that it can be stopped without a loss.

        It takes no new messages from then on, over restarts too, and is registered without write
        permission. Producers that are connected get `grace_s` to turn to other brokers. Then this
        waits until groups have read what is there, except `ignore_groups` and broadcasting ones,
        and until delayed and half messages are done, and calls `progress` about every second (in
        the thread of the event loop). At the end the broker leaves the name servers.

        Ending this call, also by a timeout, leaves the broker read-only: call it again to go on, or
        `resume_broker` to go back. Apache's brokers are only hidden from producers, by the name
        servers. `dry_run` looks and changes nothing.

        Raises NotFound; AdminError, having changed nothing, for the last broker that takes messages
        of a topic and for dead letters that `leave_dead_letters` does not accept; DrainUnfinished
        after `timeout_s`."""
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
        """Let a broker that drains or is drained take messages again; how it was before. One that
        left is found by the note that name servers have, or at `address`. Raises NotFound."""
        return await drains.resume(self._cluster, broker, address)

    async def broker_drain(self, broker: str) -> BrokerDrain:
        """Whether a broker is being emptied, and what it has to finish before it can be stopped.
        Changes nothing. Raises NotFound."""
        return await drains.broker_drain(self._cluster, broker)

    async def drained_brokers(self) -> dict[str, str]:
        """Name → address of brokers that were drained, and are not registered."""
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
        """The live consumers and producers; of a topic the consumers only, since brokers do not
        know who sends to it. Raises ValueError."""
        return await clients.clients(self._cluster, role=role, group=group, topic=topic)

    async def with_start_times(self, listed: Sequence[LiveClient]) -> list[LiveClient]:
        """The same clients, with `since` of each consumer that answers."""
        return await clients.with_start_times(self._cluster, listed)

    # ---- name servers

    async def name_servers(self) -> Listing[NameServerInfo]:
        """Each name server with what it knows; those that do not answer are in `errors` too."""
        return await name_servers.name_servers(self._cluster)

    async def name_server_settings(self) -> Listing[ServerSettings]:
        """The settings in force on each name server."""
        answers = await server_settings.name_server_settings(self._cluster)
        return Listing(tuple(answers.by_broker.values()), answers.errors)

    async def change_name_server_settings(
        self, values: Mapping[str, str], *, dry_run: bool = False
    ) -> list[SettingChange]:
        """Change settings of all name servers; what changed. Nothing is changed unless all of them
        answer. SparrowMQ's forget it at their next start. Raises ValueError, NotFound, AdminError
        as `change_broker_settings`."""
        return await server_settings.change_name_server_settings(
            self._cluster, values, dry_run=dry_run
        )

    async def key_values(self, namespace: str) -> dict[str, str]:
        """All keys of a namespace of the name servers. Raises NotFound."""
        return await name_servers.key_values(self._cluster, namespace)

    async def key_value(self, namespace: str, key: str) -> str:
        """One value that name servers keep. Raises NotFound."""
        return await name_servers.key_value(self._cluster, namespace, key)

    async def set_key_value(self, namespace: str, key: str, value: str) -> None:
        """Set a value on all name servers. Raises ValueError."""
        await name_servers.set_key_value(self._cluster, namespace, key, value)

    async def delete_key_value(self, namespace: str, key: str) -> None:
        """Remove a key from all name servers. Raises NotFound."""
        await name_servers.delete_key_value(self._cluster, namespace, key)

    # ---- topics

    async def topics(self, *, cluster: str | None = None) -> list[str]:
        """Names of all topics, or of those that the brokers of a cluster have: also RocketMQ's own,
        and the retry and dead-letter topics of groups. Raises NotFound."""
        return await topics.topic_names(self._cluster, cluster)

    async def topic(self, topic: str) -> TopicInfo:
        """Settings per broker, and the offsets of every queue. Raises NotFound."""
        return await topics.describe_topic(self._cluster, topic)

    async def topic_figures(
        self, topics: Sequence[str], *, rates: bool = False
    ) -> Listing[TopicFigures]:
        """Settings, messages and sends per second of many topics, with a question for each and a
        few for all; `rates` adds deliveries and sizes, which are several more questions."""
        return await topic_figures.topic_figures(self._cluster, topics, rates=rates)

    async def topic_readers(self, topic: str) -> Listing[TopicReader]:
        """The groups that read a topic, with what they have not read and their live members. Raises
        NotFound."""
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
    ) -> list[str]:
        """Create a topic on brokers, a cluster, or everywhere; names of the brokers that have it.

        Producers and consumers find it when this returns. A topic that exists gets these settings;
        with `replace=False` it stays as it is, and AlreadyExists is raised if it differs in what is
        given. `queues` counts per broker, and holds for reading and writing unless those are given;
        what is not given is 8 queues, for reading and writing, not ordered. Raises ValueError,
        NotFound.
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
            self._cluster, topic, wanted, brokers=brokers, of=cluster, replace=replace
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
        dry_run: bool = False,
    ) -> list[SettingChange]:
        """Change what is given, on the brokers named or on all that have the topic; an attribute
        that is None is removed. Nothing is changed while one of them hangs, nor in a dry run.
        `queues` are for reading and writing unless those are given.

        Messages of queues that readers do not see any more are not delivered. Raises NotFound.
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
            self._cluster, topic, wanted, brokers=brokers, dry_run=dry_run
        )

    async def spread_topic(
        self,
        topic: str,
        brokers: Sequence[str],
        *,
        accept_disorder: bool = False,
        dry_run: bool = False,
    ) -> list[TopicShare]:
        """Put a topic on more brokers, with the settings that it has; the others get as many queues
        as the one that has most. `accept_disorder` is needed for a topic that is marked as ordered
        or has a single queue: keys move to other queues. Raises ValueError, NotFound; AdminError,
        having changed nothing, for a broker that has it already or drains."""
        return await spreads.spread_topic(
            self._cluster, topic, brokers, accept_disorder=accept_disorder, dry_run=dry_run
        )

    async def delete_topic(self, topic: str, *, missing_ok: bool = False) -> list[str]:
        """Delete a topic with its messages and every group's progress in it, on all brokers, or on
        none while one hangs. Raises NotFound if none has it, unless `missing_ok`; an interrupted
        call can be repeated."""
        return await topics.delete_topic(self._cluster, topic, missing_ok=missing_ok)

    # ---- limits

    async def limits(self) -> Listing[Limit]:
        """All quotas and largest backlogs with their use, summed over the brokers that have them.
        Apache's brokers have none."""
        return await limits.limits(self._cluster)

    async def dedup_windows(self) -> Listing[DedupWindow]:
        """Topics that are de-duplicated, with what each broker remembers of them."""
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
        """Limit what a `topic` or `producer-group` sends, what a `consumer-group` gets, or what
        every `client` sends: so many messages and bytes a second, on each broker. A limit that is
        not given stays as it is. Raises ValueError, and NotFound for an unknown topic or group."""
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
        """Let each broker refuse sends to a topic, or slow them, while one of these groups is so
        many messages or seconds behind, until it is at 80 % of that. Raises ValueError, and
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
        """Names of all consumer groups, those of RocketMQ's own tools among them."""
        return await groups.group_names(self._cluster)

    async def group_rows(self, names: Sequence[str], *, waiting: bool = True) -> Listing[GroupRow]:
        """What a list says of each of these groups: members, topics, lag and, with `waiting`, since
        when the oldest message waits. A group that is unknown has a row without figures."""
        return await group_rows.group_rows(self._cluster, names, waiting=waiting)

    async def group(self, group: str) -> GroupInfo:
        """Settings per broker, members, and what each subscribes to. Raises NotFound."""
        return await groups.describe_group(self._cluster, group)

    async def members(self, group: str) -> Listing[GroupMember]:
        """The live members, each with what it says about itself; none for an offline group."""
        return await members.members(self._cluster, group)

    async def member(self, group: str, client_id: str, *, stacks: bool = False) -> GroupMember:
        """One live member, with the stacks of its threads and tasks if asked. Raises NotFound, and
        AdminError if the member does not answer."""
        return await members.member(self._cluster, group, client_id, stacks=stacks)

    async def rebalance(self, group: str, topic: str | None = None) -> RebalanceInfo:
        """Who owns which queue of a group, since when and why, and what moved lately: in one topic,
        or in all that live members subscribe to. Raises NotFound."""
        return await rebalance.explain(self._cluster, group, topic)

    async def simulated_group(self, group: str, topic: str | None = None) -> SimulatedGroup:
        """A live group as `rebalance_simulation.simulate` takes it. Raises NotFound, and AdminError
        for a group without live members."""
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
    ) -> list[str]:
        """Create a group on brokers, a cluster, or everywhere; names of the brokers that have it.

        A group that exists gets these settings; with `replace=False` it stays as it is, and
        AlreadyExists is raised if it differs in what is given. What is not given is 16 retries, one
        retry queue, consuming and broadcasting allowed, not orderly. Most clusters create groups
        when their first member comes. Raises ValueError, NotFound.
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
            self._cluster, group, wanted, brokers=brokers, of=cluster, replace=replace
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
        dry_run: bool = False,
    ) -> list[SettingChange]:
        """Change what is given, on the brokers named or on all that have the group; an attribute
        that is None is removed. Nothing is changed while one of them hangs, nor in a dry run.
        Raises NotFound."""
        wanted = group_changes.wanted_group(
            may_consume=may_consume,
            may_broadcast=may_broadcast,
            orderly=orderly,
            retries=retries,
            retry_queues=retry_queues,
            attributes=attributes,
        )
        return await group_changes.update_group(
            self._cluster, group, wanted, brokers=brokers, dry_run=dry_run
        )

    async def delete_group(
        self,
        group: str,
        *,
        keep_offsets: bool = False,
        force: bool = False,
        missing_ok: bool = False,
    ) -> list[str]:
        """Delete a group and its progress on all brokers, or on none while one hangs; its retry and
        dead-letter topics stay.

        Raises NotFound if no broker has it, unless `missing_ok`, and InUse if it has live members,
        unless `force`.
        """
        return await group_changes.delete_group(
            self._cluster, group, keep_offsets=keep_offsets, force=force, missing_ok=missing_ok
        )

    async def pause_group(self, group: str, *, topic: str | None = None) -> list[str]:
        """Let brokers refuse the pulls of a group, in all topics or in one; names of the brokers.
        What members have fetched is handled still. Raises NotFound."""
        return await group_changes.set_paused(self._cluster, group, topic, paused=True)

    async def resume_group(self, group: str, *, topic: str | None = None) -> list[str]:
        """Serve the pulls of a paused group again; names of the brokers. Raises NotFound."""
        return await group_changes.set_paused(self._cluster, group, topic, paused=False)

    async def subscriptions(self, group: str) -> Listing[GroupSubscription]:
        """What the members of a group subscribe to, and in what they differ. Raises NotFound."""
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
        """How far a group is in each queue, and which member holds it. `owners=False` spares the
        questions to members. With `waiting` also since when the oldest message waits, with
        `matching` how many a filter of tags takes: one question and more per queue. Raises
        NotFound."""
        found = await lag.group_lag(self._cluster, group, topic, owners=owners)
        if waiting:
            found = await with_waiting(self._cluster, found)
        return await with_matching(self._cluster, found) if matching else found

    async def reset_offsets(
        self,
        group: str,
        topic: str,
        to: ResetTo,
        *,
        queues: Collection[MessageQueue] = (),
        dry_run: bool = False,
    ) -> list[OffsetMove]:
        """Let a group, live members included, go on elsewhere in a topic; every queue with its
        offset before and after.

        `to` is "earliest", "latest", a datetime with a zone or milliseconds (the first message
        stored then or later), MoveBy(n) from where it is, or an offset for each queue that shall
        move; `queues` are the only ones that move. Nothing is moved unless all brokers concerned
        answer, nor in a dry run. Raises ValueError, NotFound, PartlyReset, and InUse for single
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
        """The same as `reset_offsets`, written down in a journal before the first offset moves, so
        that `undo_reset` can put the group back. `who` is whom the record names."""
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
        """What an undo would take back: the last reset of a group in this cluster that was not
        undone; None if there is none."""
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
        """Put a group back to where it was before a reset of the journal: the one with this id, or
        the last. Queues in which it had no progress stay where they are. Raises NotFound, and
        AdminError if members have gone on since, or if the reset named was made in another cluster
        of this name, unless `force`."""
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
        """The offset of the first message of a queue that was stored at a time or later."""
        return await offsets.offset_at(self._cluster, queue, when)

    # ---- moving to another cluster

    async def export_state(self, *, topics: str = "*", groups: str = "*") -> ClusterState:
        """Topics, groups, settings and progress of this cluster, without messages: those whose
        names fit the patterns. Brokers that did not answer are in `errors`."""
        where = ", ".join(self._cluster.client.name_servers.addresses)
        return await migration.export_state(self._cluster, where, topics=topics, groups=groups)

    async def import_state(
        self, state: ClusterState, *, dry_run: bool = False
    ) -> list[MigrationItem]:
        """Give this cluster what it lacks of another's state; what became of each topic, group and
        progress. What is here already is not changed, so a call can be repeated. Raises AdminError,
        before anything is changed, unless every broker answers."""
        return await migration.import_state(self._cluster, state, dry_run=dry_run)

    # ---- messages

    async def message(self, message_id: str, topic: str | None = None) -> MessageExt:
        """A message by its unique id, which needs the topic, or by its offset id. Raises NotFound,
        ValueError for what is no id."""
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
        """Messages with a key that were stored in a time range, the newest first; `is_cut` if there
        are more. Raises NotFound."""
        return await messages.find_messages(
            self._cluster, topic, key, begin=begin, end=end, limit=limit
        )

    async def read_message(self, queue: MessageQueue, offset: int) -> MessageExt:
        """The message at an offset of a queue, without any group's progress. Raises NotFound."""
        return await messages.read_message(self._cluster, queue, offset)

    async def read_messages(
        self, queue: MessageQueue, offset: int, *, limit: int = 32
    ) -> Listing[MessageExt]:
        """Messages from an offset on, in their order; `is_cut` if the queue goes on. Brokers may
        give fewer than `limit`. Raises NotFound."""
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
    ) -> Examination:
        """What is wrong, why, and what to do: with a "topic", "group", "message" or "cluster" of
        that name, or with everything. Nothing is changed.

        A message needs its `topic`, unless its id is an offset id. Groups are looked at twice,
        `for_s` apart. Of everything, `limit` topics and groups are examined; 0 for all. Brokers and
        name servers that do not answer are findings. Raises ValueError, NotFound.
        """
        order = order_of(about, name, topic=topic, for_s=for_s, limit=limit)
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
        """The first messages of a topic, or of one queue, that were stored in a time range, or the
        last, by time; `total` is how many there are. Raises ValueError, NotFound, NotReadable."""
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
        """Give `on_message` what is stored in a topic from now on, or since a time, until it
        returns False. No group takes part, and no progress is kept. Raises ValueError, NotFound,
        NotReadable, and AdminError when no broker answers any more."""
        await tails.tail(
            self._cluster,
            topic,
            on_message,
            expression=expression,
            queue=queue,
            since=since,
            interval_s=interval_s,
        )

    async def trace(self, message_id: str, topic: str | None = None) -> MessageTrace:
        """What clients have reported of a message, and how far each group of its topic is with it.
        The message itself is found by its topic, or by the one that the trace names. Raises
        ValueError, and NotFound if neither a trace nor the message is there."""
        return await message_traces.trace(self._cluster, message_id, topic)

    async def deliver(
        self, message_id: str, group: str, *, topic: str | None = None, client_id: str | None = None
    ) -> Delivered:
        """Let a live member handle a stored message now, the first one unless it is named; progress
        stays as it is. Raises NotFound, and AdminError if the member does not answer."""
        return await deliveries.deliver(
            self._cluster, message_id, group, topic=topic, client_id=client_id
        )

    async def resume_transaction(self, message_id: str) -> MessageExt:
        """Let a broker ask the producers again about a transaction that it has set aside; the
        message, which stays in TRANS_CHECK_MAX_TIME_TOPIC. The id is its offset id there. Raises
        ValueError, NotFound, AdminError."""
        return await transactions.resume_transaction(self._cluster, message_id)

    # ---- dead letters

    async def dead_letter_groups(self) -> list[str]:
        """Names of the groups that have, or had, dead letters."""
        return await dead_letters.dead_letter_groups(self._cluster)

    async def count_dead_letters(self, group: str, recent: datetime | int) -> DeadLetterCount:
        """How many dead letters a group has, how old they are, and how many came since `recent`.
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
        """The newest dead letters of a group in a time range, or the oldest; with a key those that
        have it. In the order of their times. Raises ValueError, NotFound, NotReadable."""
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
        """Send dead letters again: those with these ids, else all of a time range. `to` is "group"
        (only the group that failed gets them), "topic" (every group of the topic they came from
        does), or the name of another topic; `rate` is the most per second.

        One that was sent before, by whomever, is left out. `on_result` hears of each when it is
        done. Raises ValueError, NotFound, NotReadable, and AdminError before anything is sent.
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
        """Give `write` each dead letter of a time range as one line of JSON; how many there were.
        What `write` returns is awaited if it can be, so that no more is read than it takes. Raises
        ValueError, NotFound, NotReadable, and AdminError if a broker does not answer."""
        return await dead_letters.export_dead_letters(
            self._cluster, group, write, since=since, until=until
        )
