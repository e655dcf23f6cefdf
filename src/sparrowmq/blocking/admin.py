"""`Admin` for programs without asyncio; see `blocking`.

    from sparrowmq.blocking import Admin
    with Admin() as admin:
        print(admin.lag("billing").lag)

Every method is written out with its signature, so that editors complete it and mypy checks it.
"""

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from sparrowmq.admin.admin import Admin as AsyncAdmin
from sparrowmq.admin.brokers import BrokerInfo
from sparrowmq.admin.cleaning import Cleanable, CleanedPart
from sparrowmq.admin.clients import ClientRole, LiveClient
from sparrowmq.admin.dead_letters import DeadLetterCount
from sparrowmq.admin.deliveries import Delivered
from sparrowmq.admin.doctor.examine import FOR_S, MOST_EXAMINED
from sparrowmq.admin.doctor.findings import Examination
from sparrowmq.admin.drain_status import BrokerDrain
from sparrowmq.admin.drains import GRACE_S
from sparrowmq.admin.group_rows import GroupRow
from sparrowmq.admin.groups import GroupInfo, GroupSubscription
from sparrowmq.admin.health import MOST_DISK, HealthCheck
from sparrowmq.admin.lag import GroupLag
from sparrowmq.admin.limits import DedupWindow, Limit
from sparrowmq.admin.members import GroupMember, LiveProducer
from sparrowmq.admin.message_traces import MessageTrace
from sparrowmq.admin.messages import MOST_FOUND
from sparrowmq.admin.migration import ClusterState, MigrationItem
from sparrowmq.admin.name_servers import NameServerInfo
from sparrowmq.admin.offsets import OffsetMove, ResetTo
from sparrowmq.admin.ranges import MessageRange
from sparrowmq.admin.rebalance import RebalanceInfo
from sparrowmq.admin.rebalance_simulation import SimulatedGroup
from sparrowmq.admin.resends import TO_GROUP, Resent
from sparrowmq.admin.reset_journal import ResetJournal, ResetRecord
from sparrowmq.admin.resets import JournaledReset
from sparrowmq.admin.roles import RoleChange
from sparrowmq.admin.server_settings import ServerSettings
from sparrowmq.admin.slaves import SlaveInfo
from sparrowmq.admin.spreads import TopicShare
from sparrowmq.admin.topic_figures import Busy, TopicFigures
from sparrowmq.admin.topic_readers import TopicReader
from sparrowmq.admin.topics import TopicInfo
from sparrowmq.admin.values import Listing, SettingChange
from sparrowmq.admin.wanted_settings import Attributes
from sparrowmq.blocking.facade import Facade
from sparrowmq.client.setting_names import takes_settings_of
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.route import ClusterInfo, TopicRoute

R = TypeVar("R")


@takes_settings_of(AsyncAdmin, without=["client"])
class Admin(Facade[AsyncAdmin]):
    """A blocking `sparrowmq.Admin`: the same methods, results and errors."""

    _survives_fork = True

    def __init__(
        self, name_servers: str | Sequence[str] | None = None, *, timeout_s: float = 5.0
    ) -> None:
        """Without `name_servers`, `sparrowmq.cluster_address` finds them. `timeout_s` limits each
        call to a broker. Raises ValueError."""
        super().__init__(partial(AsyncAdmin, name_servers, timeout_s=timeout_s))

    async def _begin(self, inner: AsyncAdmin) -> None:
        await inner.start()

    def start(self) -> None:
        """Start, so that calls can be made; `with` does it."""
        self._start(self._begin)

    def _wait(self, work: Callable[[AsyncAdmin], Coroutine[Any, Any, R]]) -> R:
        loop, admin = self._running()
        return loop.run(work(admin))

    # ---- clusters, brokers and producers

    def cluster_info(self) -> ClusterInfo:
        """Clusters, their brokers and addresses, as the name servers know them."""
        return self._wait(lambda admin: admin.cluster_info())

    def clusters(self) -> dict[str, tuple[str, ...]]:
        """Names of the brokers of each cluster."""
        return self._wait(lambda admin: admin.clusters())

    def brokers(self) -> Listing[BrokerInfo]:
        """All brokers with role, address, version and figures. A broker that does not answer has no
        figures, and is also in `errors`."""
        return self._wait(lambda admin: admin.brokers())

    def broker_config(self, broker: str) -> dict[str, str]:
        """The settings in force on a broker, by Apache's names. Raises NotFound."""
        return self._wait(lambda admin: admin.broker_config(broker))

    def broker_settings(self, broker: str, *, broker_id: int = 0) -> ServerSettings:
        """Like `broker_config`, and which settings may change while the broker runs. A `broker_id`
        selects one of its slaves. Raises NotFound."""
        return self._wait(lambda admin: admin.broker_settings(broker, broker_id=broker_id))

    def change_broker_settings(
        self, broker: str, values: Mapping[str, str], *, broker_id: int = 0, dry_run: bool = False
    ) -> list[SettingChange]:
        """Change settings of a running broker, all or none. Returns what changed. SparrowMQ's
        brokers lose the changes when they restart. Raises ValueError, NotFound (also for a setting
        that the broker does not have), and AdminError for one that cannot change."""
        return self._wait(
            lambda admin: admin.change_broker_settings(
                broker, values, broker_id=broker_id, dry_run=dry_run
            )
        )

    def clean_broker(self, broker: str, what: Collection[Cleanable]) -> list[CleanedPart]:
        """Make a broker delete expired or unused data now. Raises NotFound."""
        return self._wait(lambda admin: admin.clean_broker(broker, what))

    def health(
        self, *, max_lag: int | None = None, max_disk: float = MOST_DISK
    ) -> list[HealthCheck]:
        """Check that servers answer, masters take sends, slaves keep up and disks have room; with
        `max_lag` also that no group is further behind than that. Raises ValueError."""
        return self._wait(lambda admin: admin.health(max_lag=max_lag, max_disk=max_disk))

    def slaves(self, brokers: Sequence[str] = ()) -> Listing[SlaveInfo]:
        """The slaves that masters remember, including those that are away: of the named brokers, or
        of all. Raises NotFound."""
        return self._wait(lambda admin: admin.slaves(brokers))

    def retire_slave(self, broker: str, broker_id: int, *, dry_run: bool = False) -> SlaveInfo:
        """Make a master forget a slave that will not come back. Returns what the master knew about
        it. Raises NotFound, and AdminError if the slave is following or its master waits for
        it."""
        return self._wait(lambda admin: admin.retire_slave(broker, broker_id, dry_run=dry_run))

    def hand_over(
        self, broker: str, slave_id: int | None = None, *, dry_run: bool = False
    ) -> RoleChange:
        """Make a master hand its role to a slave: the named one, or the one that has the most.
        Nothing is lost, and no send of a SparrowMQ client fails. The new master is registered when
        this returns. Raises NotFound, and AdminError if the roles stay as they are."""
        return self._wait(lambda admin: admin.hand_over(broker, slave_id, dry_run=dry_run))

    def promote(
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
        return self._wait(
            lambda admin: admin.promote(
                broker, slave_id, accept_loss=accept_loss, address=address, dry_run=dry_run
            )
        )

    def drain_broker(
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
        return self._wait(
            lambda admin: admin.drain_broker(
                broker,
                ignore_groups=ignore_groups,
                leave_dead_letters=leave_dead_letters,
                grace_s=grace_s,
                timeout_s=timeout_s,
                progress=progress,
                dry_run=dry_run,
            )
        )

    def resume_broker(self, broker: str, *, address: str | None = None) -> BrokerDrain:
        """Let a draining or drained broker take messages again. Returns its state before. A broker
        that has unregistered is found by the note that name servers keep, or at `address`. Raises
        NotFound."""
        return self._wait(lambda admin: admin.resume_broker(broker, address=address))

    def broker_drain(self, broker: str) -> BrokerDrain:
        """Whether a broker is being drained, and what it still has to finish before it can be
        stopped. Changes nothing. Raises NotFound."""
        return self._wait(lambda admin: admin.broker_drain(broker))

    def drained_brokers(self) -> dict[str, str]:
        """Name → address of brokers that were drained and are not registered."""
        return self._wait(lambda admin: admin.drained_brokers())

    def producers(self) -> Listing[LiveProducer]:
        """The live producers of all brokers."""
        return self._wait(lambda admin: admin.producers())

    def clients(
        self,
        *,
        role: ClientRole | None = None,
        group: str | None = None,
        topic: str | None = None,
    ) -> Listing[LiveClient]:
        """The live consumers and producers; for a topic only the consumers, since brokers do not
        know which producers send to it. Raises ValueError."""
        return self._wait(lambda admin: admin.clients(role=role, group=group, topic=topic))

    def with_start_times(self, listed: Sequence[LiveClient]) -> list[LiveClient]:
        """The same clients, with `since` filled in for each consumer that answers."""
        return self._wait(lambda admin: admin.with_start_times(listed))

    # ---- name servers

    def name_servers(self) -> Listing[NameServerInfo]:
        """Each name server and what it knows; those that do not answer are also in `errors`."""
        return self._wait(lambda admin: admin.name_servers())

    def name_server_settings(self) -> Listing[ServerSettings]:
        """The settings in force on each name server."""
        return self._wait(lambda admin: admin.name_server_settings())

    def change_name_server_settings(
        self, values: Mapping[str, str], *, dry_run: bool = False
    ) -> list[SettingChange]:
        """Change settings of all name servers. Returns what changed. Nothing changes unless all of
        them answer. SparrowMQ's name servers lose the changes when they restart. Raises ValueError,
        NotFound, AdminError like `change_broker_settings`."""
        return self._wait(lambda admin: admin.change_name_server_settings(values, dry_run=dry_run))

    def key_values(self, namespace: str) -> dict[str, str]:
        """All keys and values in a namespace of the name servers. Raises NotFound."""
        return self._wait(lambda admin: admin.key_values(namespace))

    def key_value(self, namespace: str, key: str) -> str:
        """The value of a key on the name servers. Raises NotFound."""
        return self._wait(lambda admin: admin.key_value(namespace, key))

    def set_key_value(self, namespace: str, key: str, value: str) -> None:
        """Set a value on all name servers. Raises ValueError."""
        return self._wait(lambda admin: admin.set_key_value(namespace, key, value))

    def delete_key_value(self, namespace: str, key: str) -> None:
        """Remove a key from all name servers. Raises NotFound."""
        return self._wait(lambda admin: admin.delete_key_value(namespace, key))

    # ---- topics

    def topics(self, *, cluster: str | None = None) -> list[str]:
        """Names of all topics, or of the topics on a cluster's brokers, including RocketMQ's own
        and the retry and dead-letter topics of groups. Raises NotFound."""
        return self._wait(lambda admin: admin.topics(cluster=cluster))

    def topic(self, topic: str) -> TopicInfo:
        """Settings per broker, and the offsets of every queue. Raises NotFound."""
        return self._wait(lambda admin: admin.topic(topic))

    def topic_figures(self, topics: Sequence[str], *, rates: bool = False) -> Listing[TopicFigures]:
        """Settings, messages and sends per second of many topics, with one request for each and a
        few for all; `rates` adds deliveries and sizes, which take several more requests."""
        return self._wait(lambda admin: admin.topic_figures(topics, rates=rates))

    def busiest_topics(
        self, topics: Sequence[str], *, by: Busy = "in", most: int = 100
    ) -> Listing[TopicFigures]:
        """All figures of the busiest of these topics, the busiest first: by messages per second
        that are stored ("in") or delivered ("out"), or by size. Other topics are only asked about
        what decides. `most=0` returns all."""
        return self._wait(lambda admin: admin.busiest_topics(topics, by=by, most=most))

    def topic_readers(self, topic: str) -> Listing[TopicReader]:
        """The groups that read a topic, with their lag and their live members. Raises NotFound."""
        return self._wait(lambda admin: admin.topic_readers(topic))

    def route(self, topic: str) -> TopicRoute:
        """Where clients find a topic. Raises NotFound."""
        return self._wait(lambda admin: admin.route(topic))

    def create_topic(
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
        return self._wait(
            lambda admin: admin.create_topic(
                topic,
                queues=queues,
                read_queues=read_queues,
                write_queues=write_queues,
                perm=perm,
                order=order,
                attributes=attributes,
                brokers=brokers,
                cluster=cluster,
                replace=replace,
                dry_run=dry_run,
            )
        )

    def update_topic(
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
        return self._wait(
            lambda admin: admin.update_topic(
                topic,
                queues=queues,
                read_queues=read_queues,
                write_queues=write_queues,
                perm=perm,
                order=order,
                attributes=attributes,
                brokers=brokers,
                cluster=cluster,
                dry_run=dry_run,
            )
        )

    def spread_topic(
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
        return self._wait(
            lambda admin: admin.spread_topic(
                topic, brokers, accept_disorder=accept_disorder, dry_run=dry_run
            )
        )

    def delete_topic(self, topic: str, *, missing_ok: bool = False) -> list[str]:
        """Delete a topic with its messages and every group's progress in it, on all brokers, or on
        none if one hangs. Raises NotFound if no broker has it, unless `missing_ok`. An interrupted
        call can be repeated."""
        return self._wait(lambda admin: admin.delete_topic(topic, missing_ok=missing_ok))

    # ---- limits

    def limits(self) -> Listing[Limit]:
        """All quotas and largest backlogs with their usage, summed over the brokers that have them.
        Apache's brokers have none."""
        return self._wait(lambda admin: admin.limits())

    def dedup_windows(self) -> Listing[DedupWindow]:
        """The de-duplicated topics, and how much each broker remembers of them."""
        return self._wait(lambda admin: admin.dedup_windows())

    def set_quota(
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
        return self._wait(
            lambda admin: admin.set_quota(
                scope,
                name,
                messages=messages,
                bytes=bytes,
                brokers=brokers,
                dry_run=dry_run,
            )
        )

    def set_backlog(
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
        return self._wait(
            lambda admin: admin.set_backlog(
                topic,
                groups,
                messages=messages,
                seconds=seconds,
                action=action,
                brokers=brokers,
                dry_run=dry_run,
            )
        )

    def unset_limits(
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
        return self._wait(
            lambda admin: admin.unset_limits(
                scope, name, which=which, brokers=brokers, dry_run=dry_run
            )
        )

    # ---- groups

    def groups(self) -> Listing[str]:
        """Names of all consumer groups, including those of RocketMQ's own tools."""
        return self._wait(lambda admin: admin.groups())

    def group_rows(self, names: Sequence[str], *, waiting: bool = True) -> Listing[GroupRow]:
        """One row per group, for a list: members, topics, lag and, with `waiting`, since when the
        oldest message has been waiting. An unknown group has a row without figures."""
        return self._wait(lambda admin: admin.group_rows(names, waiting=waiting))

    def group(self, group: str) -> GroupInfo:
        """Settings per broker, members, and what each member subscribes to. Raises NotFound."""
        return self._wait(lambda admin: admin.group(group))

    def members(self, group: str) -> Listing[GroupMember]:
        """The live members and what each reports about itself; none for an offline group."""
        return self._wait(lambda admin: admin.members(group))

    def member(self, group: str, client_id: str, *, stacks: bool = False) -> GroupMember:
        """One live member, on request with the stacks of its threads and tasks. Raises NotFound,
        and AdminError if the member does not answer."""
        return self._wait(lambda admin: admin.member(group, client_id, stacks=stacks))

    def rebalance(self, group: str, topic: str | None = None) -> RebalanceInfo:
        """Which member owns which queue of a group, since when and why, and what moved recently: in
        one topic, or in all that live members subscribe to. Raises NotFound."""
        return self._wait(lambda admin: admin.rebalance(group, topic))

    def simulated_group(self, group: str, topic: str | None = None) -> SimulatedGroup:
        """A live group in the form that `rebalance_simulation.simulate` takes. Raises NotFound, and
        AdminError for a group without live members."""
        return self._wait(lambda admin: admin.simulated_group(group, topic))

    def create_group(
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
        return self._wait(
            lambda admin: admin.create_group(
                group,
                retries=retries,
                retry_queues=retry_queues,
                may_consume=may_consume,
                may_broadcast=may_broadcast,
                orderly=orderly,
                attributes=attributes,
                brokers=brokers,
                cluster=cluster,
                replace=replace,
                dry_run=dry_run,
            )
        )

    def update_group(
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
        return self._wait(
            lambda admin: admin.update_group(
                group,
                retries=retries,
                retry_queues=retry_queues,
                may_consume=may_consume,
                may_broadcast=may_broadcast,
                orderly=orderly,
                attributes=attributes,
                brokers=brokers,
                cluster=cluster,
                dry_run=dry_run,
            )
        )

    def delete_group(
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
        return self._wait(
            lambda admin: admin.delete_group(
                group,
                keep_offsets=keep_offsets,
                force=force,
                missing_ok=missing_ok,
                dry_run=dry_run,
            )
        )

    def pause_group(
        self, group: str, *, topic: str | None = None, dry_run: bool = False
    ) -> list[str]:
        """Make brokers refuse a group's pulls, in all topics or in one; `dry_run` only checks.
        Returns the names of the brokers. Members still handle what they have already fetched.
        Raises NotFound."""
        return self._wait(lambda admin: admin.pause_group(group, topic=topic, dry_run=dry_run))

    def resume_group(
        self, group: str, *, topic: str | None = None, dry_run: bool = False
    ) -> list[str]:
        """Make brokers serve the pulls of a paused group again; `dry_run` only checks. Returns the
        names of the brokers. Raises NotFound."""
        return self._wait(lambda admin: admin.resume_group(group, topic=topic, dry_run=dry_run))

    def subscriptions(self, group: str) -> Listing[GroupSubscription]:
        """What the members of a group subscribe to, and where they differ. Raises NotFound."""
        return self._wait(lambda admin: admin.subscriptions(group))

    # ---- progress

    def lag(
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
        return self._wait(
            lambda admin: admin.lag(group, topic, owners=owners, waiting=waiting, matching=matching)
        )

    def lags(self, groups: Sequence[str], *, owners: bool = False) -> list[GroupLag]:
        """Like `lag` for each of these groups, with few requests for all of them together; those
        that no broker knows are left out. Raises AdminError."""
        return self._wait(lambda admin: admin.lags(groups, owners=owners))

    def sampled_lags(self, groups: Collection[str]) -> list[GroupLag]:
        """The lag of these groups, without owners, in a number of requests that does not grow with
        theirs, to be asked again and again. Left out are those of which that much is not known
        this way, such as groups without progress. Raises AdminError."""
        return self._wait(lambda admin: admin.sampled_lags(groups))

    def with_waiting(self, lag: GroupLag) -> GroupLag:
        """The same lag with what `waiting` and `matching` add to it."""
        return self._wait(lambda admin: admin.with_waiting(lag))

    def oldest_waiting(self, lag: GroupLag) -> datetime | None:
        """When the message that has been waiting longest was stored; None if none waits, or if that
        is not known of a queue. It takes fewer requests than `with_waiting`. Raises AdminError."""
        return self._wait(lambda admin: admin.oldest_waiting(lag))

    def reset_offsets(
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
        return self._wait(
            lambda admin: admin.reset_offsets(group, topic, to, queues=queues, dry_run=dry_run)
        )

    def reset_with_journal(
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
        return self._wait(
            lambda admin: admin.reset_with_journal(
                group, topic, to, journal=journal, who=who, queues=queues, dry_run=dry_run
            )
        )

    def last_reset(self, group: str, *, journal: ResetJournal) -> ResetRecord | None:
        """The reset that an undo would revert: the group's last one in this cluster that has not
        been undone, or None."""
        return self._wait(lambda admin: admin.last_reset(group, journal=journal))

    def undo_reset(
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
        return self._wait(
            lambda admin: admin.undo_reset(
                group, reset_id, journal=journal, who=who, force=force, dry_run=dry_run
            )
        )

    def clone_offsets(
        self, source: str, target: str, *, topic: str | None = None, dry_run: bool = False
    ) -> list[OffsetMove]:
        """Give a group the progress of another, in one topic or in all. Raises NotFound, InUse if
        the target has live members, PartlyReset."""
        return self._wait(
            lambda admin: admin.clone_offsets(source, target, topic=topic, dry_run=dry_run)
        )

    def offset_at(self, queue: MessageQueue, when: datetime | int) -> int:
        """The offset of a queue's first message stored at or after a time."""
        return self._wait(lambda admin: admin.offset_at(queue, when))

    # ---- moving to another cluster

    def export_state(self, *, topics: str = "*", groups: str = "*") -> ClusterState:
        """Topics and groups whose names match the patterns, with their settings and progress but
        without messages. Brokers that did not answer are in `errors`."""
        return self._wait(lambda admin: admin.export_state(topics=topics, groups=groups))

    def import_state(self, state: ClusterState, *, dry_run: bool = False) -> list[MigrationItem]:
        """Create in this cluster what it lacks of another's state. Returns the outcome for each
        topic, group and progress. What already exists is not changed, so a call can be repeated.
        Raises AdminError, before anything is changed, unless every broker answers."""
        return self._wait(lambda admin: admin.import_state(state, dry_run=dry_run))

    # ---- messages

    def message(self, message_id: str, topic: str | None = None) -> MessageExt:
        """A message by its unique id, which needs the topic, or by its offset id. Raises NotFound,
        NotAllAnswered while a broker that did not answer may have it, and ValueError for an invalid
        id."""
        return self._wait(lambda admin: admin.message(message_id, topic))

    def find_messages(
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
        return self._wait(
            lambda admin: admin.find_messages(topic, key, begin=begin, end=end, limit=limit)
        )

    def read_message(self, queue: MessageQueue, offset: int) -> MessageExt:
        """The message at an offset of a queue; no group's progress changes. Raises NotFound."""
        return self._wait(lambda admin: admin.read_message(queue, offset))

    def read_messages(
        self, queue: MessageQueue, offset: int, *, limit: int = 32
    ) -> Listing[MessageExt]:
        """Messages from an offset on, in order; `is_cut` if the queue has more. Brokers may return
        fewer than `limit`. Raises NotFound."""
        return self._wait(lambda admin: admin.read_messages(queue, offset, limit=limit))

    # ---- the doctor

    def doctor(
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
        return self._wait(
            lambda admin: admin.doctor(
                about,
                name,
                topic=topic,
                for_s=for_s,
                limit=limit,
                topics_first=topics_first,
                groups_first=groups_first,
            )
        )

    def messages_between(
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
        return self._wait(
            lambda admin: admin.messages_between(
                topic, since=since, until=until, queue=queue, newest=newest, limit=limit
            )
        )

    def tail(
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
        return self._wait(
            lambda admin: admin.tail(
                topic,
                on_message,
                expression=expression,
                queue=queue,
                since=since,
                interval_s=interval_s,
            )
        )

    def trace(self, message_id: str, topic: str | None = None) -> MessageTrace:
        """What clients have reported about a message, and how far each group of its topic is with
        it. The message itself is looked up in `topic`, or in the topic that the trace names. Raises
        ValueError, and NotFound if there is neither a trace nor the message."""
        return self._wait(lambda admin: admin.trace(message_id, topic))

    def deliver(
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
        return self._wait(
            lambda admin: admin.deliver(
                message_id, group, topic=topic, client_id=client_id, dry_run=dry_run
            )
        )

    def resume_transaction(self, message_id: str) -> MessageExt:
        """Make a broker ask the producers again about a transaction that it has set aside. Returns
        the message, which stays in TRANS_CHECK_MAX_TIME_TOPIC; `message_id` is its offset id there.
        Raises ValueError, NotFound, AdminError."""
        return self._wait(lambda admin: admin.resume_transaction(message_id))

    # ---- dead letters

    def dead_letter_groups(self) -> list[str]:
        """Names of the groups that have, or had, dead letters."""
        return self._wait(lambda admin: admin.dead_letter_groups())

    def count_dead_letters(self, group: str, recent: datetime | int) -> DeadLetterCount:
        """How many dead letters a group has, how old they are, and how many arrived since `recent`.
        Raises NotFound."""
        return self._wait(lambda admin: admin.count_dead_letters(group, recent))

    def dead_letters(
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
        return self._wait(
            lambda admin: admin.dead_letters(
                group, since=since, until=until, key=key, newest=newest, limit=limit
            )
        )

    def resend_dead_letters(
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
        return self._wait(
            lambda admin: admin.resend_dead_letters(
                group,
                ids=ids,
                since=since,
                until=until,
                to=to,
                rate=rate,
                dry_run=dry_run,
                on_result=on_result,
            )
        )

    def export_dead_letters(
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
        return self._wait(
            lambda admin: admin.export_dead_letters(group, write, since=since, until=until)
        )
