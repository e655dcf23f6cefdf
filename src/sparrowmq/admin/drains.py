"""Emptying a broker before it is stopped, and taking it back.

    looked at ─▶ begins: no new messages ─▶ waits for groups, delayed and half messages ─▶ leaves
                         │                                  │                                │
                         └──────────── stays so when the operator goes away ◀────────────────┘

The broker keeps the state; the operator's program only waits, so it may end and be started again.
A broker that has left is not registered, so name servers keep a note of its address, which the
broker repeats: `resume` finds it by its name. Apache's brokers have no such state. There the name
servers hide the broker from producers (wipeWritePerm), which is all that can be done.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace

from sparrowmq.admin.cluster_calls import ClusterCalls
from sparrowmq.admin.drain_status import BrokerDrain, DrainView, look_at
from sparrowmq.admin.errors import (
    AdminError,
    BrokerRefusal,
    NotFound,
    PartlyDone,
    Unanswered,
    shown,
)
from sparrowmq.admin.groups import find_group
from sparrowmq.admin.members import connected
from sparrowmq.admin.name_servers import delete_key_value, key_values, set_key_value
from sparrowmq.admin.topics import all_topic_configs, is_hidden
from sparrowmq.admin.values import BrokerFailure
from sparrowmq.client.argument_checks import check_names, check_time
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.drain import DRAINED_BROKERS, DrainState
from sparrowmq.protocol.headers.drain import BeginDrain, ClusterLeft, EndDrain, LeaveCluster
from sparrowmq.protocol.headers.nameserver import AddWritePerm, WipeWritePerm
from sparrowmq.protocol.names import check_group, is_dlq_topic, is_retry_topic, is_system_topic
from sparrowmq.protocol.perm import is_writable
from sparrowmq.protocol.topic_config import TopicConfig

GRACE_S = 35.0
"""Clients ask for routes every 30 s."""
ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
_BY_ADDRESS = (
    "if it is drained, a name server that was restarted hears of it again within 30 s; or say where"
    " it is: sparrowmq broker resume {0} --address HOST:PORT"
)
_LOOK_EVERY_S = 1.0

Progress = Callable[[BrokerDrain], None]


class DrainUnfinished(AdminError):
    """The broker takes no new messages but is not empty yet; `drain` says what is left."""

    def __init__(self, drain: BrokerDrain, reason: str) -> None:
        super().__init__(
            f"{reason}; {drain.broker} stays read-only. Continue with: sparrowmq broker drain"
            f" {drain.broker}; undo with: sparrowmq broker resume {drain.broker}"
        )
        self.drain = drain


async def drained_brokers(cluster: ClusterCalls) -> dict[str, str]:
    """Name → address of brokers that were drained and have left. See `Admin.drained_brokers`."""
    try:
        noted = await key_values(cluster, DRAINED_BROKERS)
    except NotFound:
        return {}
    known = (await cluster.info()).broker_addr_table
    registered = {name for name, data in known.items() if data.master_addr is not None}
    return {name: address for name, address in noted.items() if name not in registered}


async def broker_drain(cluster: ClusterCalls, name: str) -> BrokerDrain:
    """How far a broker's drain has got. See `Admin.broker_drain`."""
    return await look_at(cluster, name, await _address(cluster, name))


async def drain(
    cluster: ClusterCalls,
    name: str,
    *,
    ignore_groups: Collection[str],
    leave_dead_letters: bool,
    grace_s: float,
    timeout_s: float | None,
    progress: Progress | None,
    dry_run: bool,
) -> BrokerDrain:
    """Empty a broker. See `Admin.drain_broker`."""
    check_names("ignore_groups", ignore_groups)
    if grace_s != 0:
        check_time("grace_s", grace_s)
    if timeout_s is not None:
        check_time("timeout_s", timeout_s)
    address = await _address(cluster, name)
    for group in ignore_groups:
        await find_group(cluster, group, await connected(cluster, check_group(group)))
    view = DrainView(cluster, name, address, ignore_groups)
    found = await view.look()
    if found.state is DrainState.LEFT:
        return found
    await _check_others(cluster, name, address)
    if found.dead and not leave_dead_letters and not dry_run:
        raise AdminError(f"nothing was changed: {dead_letters(found)}")
    if dry_run:
        return found
    await _begin(cluster, found, grace_s)
    if found.state is DrainState.SERVING:
        try:  # two drains that start together must not each find the other broker taking messages
            await _check_others(cluster, name, address)
        except AdminError:
            await _end(cluster, found)
            raise
    waiting = _Waiting(cluster, found, view, leave_dead_letters, grace_s, progress)
    try:
        async with asyncio.timeout(timeout_s):
            return await waiting.run()
    except TimeoutError as error:
        reason = f"not drained after {timeout_s:g} s"
        raise DrainUnfinished(waiting.last, reason) from error


async def resume(cluster: ClusterCalls, name: str, address: str | None) -> BrokerDrain:
    """Let a broker take messages again; how it was before. See `Admin.resume_broker`."""
    try:
        at = address or await _address(cluster, name)
    except NotFound as error:
        raise NotFound(error.kind, name, f"{error.hint}; {_BY_ADDRESS.format(name)}") from None
    found = await look_at(cluster, name, at)
    if found.state is not DrainState.SERVING:
        await _end(cluster, found)
    if await is_hidden(cluster, name):  # it was hidden with Apache's tools
        await _change_name_servers(cluster, AddWritePerm(broker_name=name), "show")
        found = replace(found, state=DrainState.DRAINING)
    await _forget(cluster, name)
    return found


async def _forget(cluster: ClusterCalls, name: str) -> None:
    """Remove the note of a broker that takes messages again. It may stay on a name server that is
    away: it counts only while the broker is not registered."""
    with suppress(AdminError):
        await delete_key_value(cluster, DRAINED_BROKERS, name)


async def _address(cluster: ClusterCalls, name: str) -> str:
    """The address of the master of a name, even if it has left. Raises NotFound, and AdminError for
    a name that has no master now."""
    try:
        return (await cluster.masters(brokers=[name]))[name]
    except AdminError as error:
        left = await drained_brokers(cluster)
        if name in left:
            return left[name]
        raise error from None


# ---- beginning and ending


async def _begin(cluster: ClusterCalls, found: BrokerDrain, grace_s: float) -> None:
    if found.is_apache:
        await _change_name_servers(cluster, WipeWritePerm(broker_name=found.broker), "hide")
        return
    await cluster.call(found.address, BeginDrain(grace_ms=round(grace_s * 1000)))


async def _end(cluster: ClusterCalls, found: BrokerDrain) -> None:
    if found.is_apache:
        await _change_name_servers(cluster, AddWritePerm(broker_name=found.broker), "show")
        return
    await cluster.call(found.address, EndDrain())


async def _change_name_servers(
    cluster: ClusterCalls, header: WipeWritePerm | AddWritePerm, verb: str
) -> None:
    """Change all name servers. Raises AdminError if one fails: its clients would continue as
    before."""
    failed = await cluster.change_name_servers(header)
    if failed:
        reasons = "; ".join(map(str, failed))
        raise AdminError(f"not all name servers {verb} {header.broker_name}: {reasons}; try again")


# ---- what speaks against it


async def _check_others(cluster: ClusterCalls, name: str, address: str) -> None:
    """Raises AdminError if producers could no longer send: a topic is not writable anywhere else,
    or an order configuration sends them here."""
    own = await all_topic_configs(cluster, address)
    wanted = {topic for topic, config in own.items() if _needs_another(config)}
    elsewhere, silent = await _writable_elsewhere(cluster, name)
    alone = {topic for topic in wanted - elsewhere if not _is_name(topic, name, own)}
    if alone:
        unknown = f" (not asked: {'; '.join(map(str, silent))})" if silent else ""
        raise AdminError(
            f"nothing was changed: no other broker takes messages of these topics of {name}:"
            f" {shown(alone)}{unknown}. Put each on another broker first: sparrowmq topic spread"
            " TOPIC --broker OTHER; or delete those that are not needed: sparrowmq topic delete"
        )
    configurations = await order_configurations(cluster)
    ordered = [
        topic for topic, text in configurations.items() if topic in wanted and _names(text, name)
    ]
    if ordered:
        raise AdminError(
            f"nothing was changed: the order configuration of {shown(ordered)} sends keys to"
            f" {name}, whatever its permissions are. Change it first: sparrowmq nameserver kv set"
            f" {ORDER_NAMESPACE} {ordered[0]} OTHER:QUEUES"
        )


def _needs_another(config: TopicConfig) -> bool:
    topic = config.topic_name
    is_users = not (is_system_topic(topic) or is_retry_topic(topic) or is_dlq_topic(topic))
    return is_users and is_writable(config.perm) and config.write_queue_nums > 0


def _is_name(topic: str, broker: str, own: Mapping[str, TopicConfig]) -> bool:
    """Whether it is one of the topics that every broker has for itself: named after the broker, its
    cluster, or for the cluster's replies."""
    return topic == broker or f"{topic}_REPLY_TOPIC" in own or topic.endswith("_REPLY_TOPIC")


async def _writable_elsewhere(
    cluster: ClusterCalls, name: str
) -> tuple[set[str], tuple[BrokerFailure, ...]]:
    """Topics for which other masters take messages, and the masters that did not answer."""
    masters, _ = await cluster.masters_and_missing()
    others = {each: at for each, at in masters.items() if each != name}
    if not others:
        return set(), ()

    async def ask(broker: str, address: str) -> set[str]:
        if await is_hidden(cluster, broker):
            return set()
        configs = await all_topic_configs(cluster, address)
        return {topic for topic, config in configs.items() if _needs_another(config)}

    answers = await cluster.ask_each(others, ask)
    return set().union(*answers.by_broker.values()), answers.errors


async def order_configurations(cluster: ClusterCalls) -> dict[str, str]:
    """Topic → the queues for messages with keys, such as `broker-a:4;broker-b:4`."""
    try:
        return await key_values(cluster, ORDER_NAMESPACE)
    except NotFound:
        return {}


def _names(configuration: str, broker: str) -> bool:
    return any(part.partition(":")[0].strip() == broker for part in configuration.split(";"))


def dead_letters(found: BrokerDrain) -> str:
    """Why a broker is not drained while it has them, and what to do with them."""
    counts = ", ".join(f"{count:,} of group {group}" for group, count in sorted(found.dead.items()))
    return (
        f"dead letters would stay behind on {found.broker}: {counts}. Send them again (sparrowmq"
        " dlq resend GROUP) or keep them (sparrowmq dlq export GROUP), and leave them with --yes"
    )


# ---- waiting


class _Waiting:
    """One drain in progress."""

    def __init__(
        self,
        cluster: ClusterCalls,
        found: BrokerDrain,
        view: DrainView,
        leave_dead_letters: bool,
        grace_s: float,
        progress: Progress | None,
    ) -> None:
        self.last = replace(found, state=DrainState.DRAINING)
        self._cluster = cluster
        self._view = view
        self._leave_dead_letters = leave_dead_letters
        self._grace_s = grace_s
        self._progress = progress

    async def run(self) -> BrokerDrain:
        """Return when the broker has left. Raises DrainUnfinished."""
        loop = asyncio.get_running_loop()
        hidden_s = loop.time()
        while True:
            found = await self._look()
            if found.is_apache and found.state is DrainState.SERVING:
                # A topic was changed: its next registration brought all permissions back
                await _begin(self._cluster, found, self._grace_s)
                hidden_s = loop.time()
            elif found.state is DrainState.SERVING:
                await _forget(self._cluster, found.broker)
                raise AdminError(f"{found.broker} was taken back by a resume; it serves again")
            if found.is_apache and loop.time() < hidden_s + self._grace_s:
                found = replace(found, refuses_sends=False)
            self._report(found)
            if found.is_finished and not found.failure:
                if found.dead and not self._leave_dead_letters:
                    raise DrainUnfinished(found, dead_letters(found))
                left = await self._leave(found)
                if left is not None:
                    return left
            await asyncio.sleep(_LOOK_EVERY_S)

    def _report(self, found: BrokerDrain) -> None:
        self.last = found
        if self._progress is not None:
            self._progress(found)

    async def _look(self) -> BrokerDrain:
        """What the broker reports; if it is killed meanwhile, it comes back in the same state."""
        try:
            return await self._view.look()
        except BrokerRefusal:
            raise
        except AdminError as error:
            return replace(self.last, failure=str(error))

    async def _leave(self, found: BrokerDrain) -> BrokerDrain | None:
        """Let the broker leave. None if it has stored something since, or does not answer: check
        again."""
        if found.is_apache:
            return found
        try:
            await set_key_value(self._cluster, DRAINED_BROKERS, found.broker, found.address)
        except PartlyDone:
            pass  # one note is enough
        except AdminError as error:
            self._report(replace(found, failure=str(error)))
            return None
        try:
            response = await self._cluster.call(found.address, LeaveCluster(log_end=found.log_end))
        except Unanswered:
            return None
        except BrokerRefusal as error:
            if error.code != ResponseCode.ILLEGAL_OPERATION:
                raise
            return None
        silent = response.header(ClusterLeft).unconfirmed
        return replace(
            found, state=DrainState.LEFT, unconfirmed=tuple(filter(None, silent.split(",")))
        )
