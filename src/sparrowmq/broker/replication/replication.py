"""A broker's part in replication: its role, the slaves it feeds and the master it follows.

```
master    feeds slaves; sends wait for them where replication is synchronous
slave     follows the master that name servers know; takes no sends, delivers nothing on its own
waiting   a master that may have lost messages which its slaves have: like a slave, but follows
          no broker; when enough slaves answer, it starts again as a master
```

A role lasts as long as the broker runs: one that gets another role starts again (`StartAgain`).
"""

import asyncio
import logging
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from sparrowmq.broker.arrivals import Arrivals
from sparrowmq.broker.config import MASTER_ID, BrokerConfig, ReplicationPeer
from sparrowmq.broker.durability import Durability
from sparrowmq.broker.environment import Environment
from sparrowmq.broker.replication.apache_master import ApacheMaster
from sparrowmq.broker.replication.claims import LogClaim
from sparrowmq.broker.replication.feed import Feed
from sparrowmq.broker.replication.follower import Approach, Follower, MustMend, MustStartAnew
from sparrowmq.broker.replication.fresh_start import ask_for_new_start, set_store_aside
from sparrowmq.broker.replication.known_slaves import KnownSlaves
from sparrowmq.broker.replication.log_description import (
    LogDescription,
    describe_log,
    is_anothers,
    note_owner,
)
from sparrowmq.broker.replication.replicas import Replicas
from sparrowmq.broker.replication.returning_master import (
    ReturnOutcome,
    brokers_of_name,
    check_new_master,
    recover_from_slaves,
)
from sparrowmq.broker.replication.shown_copy import ShownCopy
from sparrowmq.broker.replication.shown_end import UNLIMITED, ShownEnd
from sparrowmq.broker.replication.table_rules import OffsetChange
from sparrowmq.net.peers import Peers
from sparrowmq.store.recovery.put_back import put_back
from sparrowmq.store.store import Store

if TYPE_CHECKING:
    from sparrowmq.broker.replication.role_change import RoleChanger

_ASK_SLAVES_AGAIN_S = 2.0
_COPIES_WITH_ONE_SLAVE = 2
"""The master's copy and that of one slave."""


class Role(Enum):
    """A broker's role, which lasts as long as it runs."""

    MASTER = "master"
    SLAVE = "slave"
    WAITING = "waiting for slaves"


class StartAgain(Exception):
    """The broker has to stop and start again, in another role or with an empty log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A store, and the role that was found for it."""

    store: Store
    role: Role
    known_slaves: KnownSlaves
    shown: ShownEnd
    reason: str = ""
    """Why the broker is a waiting master."""
    has_rival: bool = False
    """Whether it waits because another broker is the master of its name."""
    progress: tuple[OffsetChange, ...] = ()
    """For a master: what its slaves know about the progress of groups."""
    confirmed: int | None = None
    """For a master: enough slaves have the log up to there; None if all of it may be seen."""
    is_promoted: bool = False
    """Whether this is a master that was a slave when its store was last used."""


async def open_in_role(
    config: BrokerConfig,
    env: Environment,
    peers: Peers,
    port: int,
    *,
    took_over_at: int | None = None,
) -> Opened:
    """Open the store and find the role; a master copies back what only its slaves have.

    `took_over_at` is where the log ended when the last master handed over: a log that still ends
    there is complete.

    Raises StoreCorrupted, DiskFull, OSError or SlavesHaveMessages.
    """
    set_store_aside(env.disk)
    report, store_config = env.reporting_start(), config.store_config(port)
    for place in put_back(env.disk, store_config, env.clock(), report, zone=env.zone):
        env.log.info("put back the bytes %d to %d of the log", place.start, place.end)
    shown = ShownEnd(env.disk)
    store = Store.open(
        store_config,
        env.disk,
        env.clock(),
        report,
        zone=env.zone,
        is_copy=True,
    )
    try:
        if not is_anothers(env.disk, config, env.log) or not config.is_slave:
            note_owner(env.disk, config)  # a slave in a wrong directory is refused by its master
        known = KnownSlaves.load(env.disk)
        shown.load()
        end = store.max_log_offset
        _settle(shown, config, end, is_complete=known.complete_to == end)
        if config.is_slave:
            store.limit_readers(shown.log_offset)
            store.admission.hold("role", _slave_reason(config))
            known.master_starts()  # its log grows as another master's from now on
            return Opened(store=store, role=Role.SLAVE, known_slaves=known, shown=shown)
        await check_new_master(config, store, known, peers, port)
        if took_over_at is not None and took_over_at == store.max_log_offset:
            # Its slaves are starting again now, too: one may not answer, another may still claim
            # to be the master.
            outcome = ReturnOutcome(may_serve=True, nothing_is_lost=True)
        else:
            outcome = await recover_from_slaves(config, store, known, peers, port=port, log=env.log)
        if not outcome.may_serve:
            env.log.error("%s", outcome.reason)
            store.admission.hold("role", outcome.reason)
            if config.copies_wanted > 1:
                store.limit_readers(shown.log_offset)
            return Opened(
                store=store,
                role=Role.WAITING,
                known_slaves=known,
                shown=shown,
                reason=outcome.reason,
                has_rival=outcome.has_rival,
            )
        was_slave = store.epochs.was_copy
        store.begin_epoch(env.clock(), nothing_is_lost=outcome.nothing_is_lost)
        known.master_starts()
        _begin_to_show(shown, config, store, outcome)
    except BaseException:
        store.abandon()
        shown.close()
        raise
    return Opened(
        store=store,
        role=Role.MASTER,
        known_slaves=known,
        shown=shown,
        progress=outcome.progress,
        confirmed=outcome.confirmed,
        is_promoted=was_slave,
    )


def _settle(shown: ShownEnd, config: BrokerConfig, log_end: int, *, is_complete: bool) -> None:
    """Adjust what was shown in the last run to the log as it was found. After an orderly stop all
    of it may be shown."""
    if is_complete and shown.log_offset != UNLIMITED:
        shown.set(log_end)
    elif config.copies_wanted > 1:
        shown.set(min(shown.log_offset, log_end))


def _begin_to_show(
    shown: ShownEnd, config: BrokerConfig, store: Store, outcome: ReturnOutcome
) -> None:
    if config.copies_wanted == 1:
        shown.set(UNLIMITED)
        return
    confirmed = store.max_log_offset if outcome.confirmed is None else outcome.confirmed
    shown.set(max(shown.log_offset, confirmed))


def _slave_reason(config: BrokerConfig) -> str:
    return (
        f"broker {config.broker_name} with the id {config.broker_id} is a slave and takes no"
        " messages; send to its master (id 0)"
    )


class Replication:
    """The parts of one broker that take part in replication."""

    def __init__(
        self,
        config: BrokerConfig,
        env: Environment,
        opened: Opened,
        peers: Peers,
        tasks: asyncio.TaskGroup,
        port: int,
    ) -> None:
        self._config = config
        self._env = env
        self.store = store = opened.store
        self._peers = peers
        self._port = port
        self.role = opened.role
        self.reason = opened.reason
        self.has_rival = opened.has_rival
        """Whether another master has the name: this one must not register."""
        self.progress_at_slaves = opened.progress
        self.is_promoted = opened.is_promoted
        self.known_slaves = opened.known_slaves
        self.shown = opened.shown
        self.ha_port = 0
        self.replicas = Replicas(
            wanted=config.copies_wanted,
            least=config.min_in_sync_replicas,
            max_gap_bytes=config.max_slave_gap_bytes,
            confirmed=opened.confirmed or 0,
            given_up=store.max_log_offset if opened.confirmed is None else 0,
        )
        self.feed = Feed(
            store,
            self.replicas,
            env.workers,
            tasks,
            chunk_bytes=config.ha_chunk_bytes,
            log=env.log,
        )
        self.follower: Follower | None = None
        """Set on a slave only."""
        self.admits_slaves = False
        """On a master, set by `admit_slaves`. A second master of the name, which is about to be
        refused, must not feed a slave what the first one does not have."""
        self.role_change: RoleChanger
        """Set when the broker serves."""

    @property
    def _knows_apache(self) -> bool:
        return self._config.replication_peer is ReplicationPeer.APACHE

    @property
    def is_master(self) -> bool:
        """Whether it takes messages."""
        return self.role is Role.MASTER

    @property
    def slaves_show_to(self) -> int | None:
        """Up to where slaves may show their copies; None if a slave's copy is enough to confirm."""
        is_enough = not self.is_master or self.replicas.wanted <= _COPIES_WITH_ONE_SLAVE
        return None if is_enough else self.shown.log_offset

    @property
    def needed_from(self) -> int | None:
        """The lowest log offset that a known slave still needs; None without slaves.

        One that is away needs what follows its last acknowledgement, or all if that is unknown.
        """
        if not self.is_master or not self.known_slaves.slaves:
            return None
        return min(self.replicas.last_acknowledged(each) for each in self.known_slaves.slaves)

    def note_heard(self, now_ms: int) -> None:
        """Note the progress of the known slaves that were heard from since the start; `now_ms` is
        the time of day."""
        feed, now_s = self.feed, asyncio.get_running_loop().time()
        heard_s = feed.gone_s | {key: link.heard_s for key, link in feed.links.items()}
        for slave_id in self.known_slaves.slaves:
            if slave_id in heard_s:
                heard_ms = now_ms - round(1000 * (now_s - heard_s[slave_id]))
                acknowledged = self.replicas.last_acknowledged(slave_id)
                self.known_slaves.note_heard(slave_id, acknowledged, heard_ms)

    @property
    def ha_address(self) -> str:
        """host:port that slaves copy from."""
        return self._config.address(self.ha_port)

    def admit_slaves(self) -> None:
        """Let slaves follow: no name server objects to this master. A waiting master feeds none: it
        may have lost messages that its slaves have."""
        self.admits_slaves = True
        self.feed.admits_strangers = self._knows_apache and self.is_master

    async def listen(self) -> None:
        """Accept followers. Raises OSError."""
        config = self._config
        wanted = config.ha_port or (config.port + 1 if config.port else 0)
        self.ha_port = await self.feed.listen(config.listen_host, wanted)

    def attach(self, durability: Durability, arrivals: Arrivals) -> None:
        """Let acknowledgements release sends, and make a slave's reports wait for its disk."""
        if durability.copies is not None:
            durability.copies.feed = self.feed.send_on
            self.feed.confirmed = durability.copies_confirmed
            self.feed.changed = durability.copies.check
            durability.copies.check()
        if self.role is Role.SLAVE:
            self.follower = Follower(
                self._config,
                self.store,
                self._peers,
                port=self._port,
                log=self._env.log,
                durability=durability,
                shown=ShownCopy(self.store, arrivals, self.shown),
                stranger=self._approach_apache if self._knows_apache else None,
                disk=self._env.disk,
                workers=self._env.workers,
            )

    async def _approach_apache(self, address: str, own: LogClaim) -> Approach:
        return await ApacheMaster(address, self._peers).approach(self.store, own)

    def describe(self) -> LogDescription:
        """This broker's log."""
        follows = "" if self.follower is None else self.follower.master_address
        is_waiting = self.role is Role.WAITING
        return describe_log(
            self._config,
            self.store,
            self._port,
            follows=follows,
            is_waiting=is_waiting,
            slaves_show_to=self.slaves_show_to,
        )

    async def run(self) -> None:
        """The main loop of a slave or a waiting master. Raises StartAgain."""
        if self.role is Role.WAITING:
            await self._wait_for_slaves()
        elif self.follower is not None:
            try:
                await self.follower.run(self._find_master)
            except MustMend as error:
                raise StartAgain(str(error)) from error
            except MustStartAnew as error:
                aside = await self._env.workers.run(ask_for_new_start, self._env.disk)
                text = f"starting again with an empty log, the old one goes to {aside}: {error}"
                raise StartAgain(text) from error

    async def _wait_for_slaves(self) -> None:
        """Ask until enough slaves answer. The next start copies back what they have, before it
        opens anything else. A rival that falls silent is still one: its name is not taken."""
        while True:
            await asyncio.sleep(_ASK_SLAVES_AGAIN_S)
            outcome: ReturnOutcome = await recover_from_slaves(
                self._config,
                self.store,
                self.known_slaves,
                self._peers,
                port=self._port,
                log=logging.getLogger(f"{self._env.log.name}.returning"),
            )
            if outcome.may_serve:
                raise StartAgain("enough slaves answer: starting again as a master")
            if outcome.has_rival and not self.has_rival:
                raise StartAgain(f"leaving the name to another master: {outcome.reason}")

    async def _find_master(self) -> str | None:
        """The address of the master of this broker's name; None if no name server knows one."""
        async for brokers in brokers_of_name(self._config, self._peers):
            if MASTER_ID in brokers:
                return brokers[MASTER_ID]
        return None

    def close(self) -> None:
        """End all connections of followers."""
        self.feed.close()
