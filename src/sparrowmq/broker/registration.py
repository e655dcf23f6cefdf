"""Registration with name servers.

The broker registers its topics with every name server: at the start, after every change, and every
30 s. A lost name server is retried every two seconds, so that routes are complete soon after it is
back.

A name server refuses a broker whose name belongs to another master that still answers. A broker
refused in this way by every name server that answers does not start: no client would find it. One
that is refused later keeps running and logs an error once a minute, because it may hold messages
that its consumers still have to get. It accepts no more (`server.py`): clients that were connected
before would send it messages which the registered master will never have.

A broker that drains registers its topics without write permission, and one that is drained does not
register at all (`drain`). Instead it repeats the note by which operators find it: a name server
that keeps its key-value configuration in memory forgets it at a restart.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import Enum, auto

from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.drain import Drain
from sparrowmq.broker.topics import Topics
from sparrowmq.clock import Clock
from sparrowmq.episodes import Episode
from sparrowmq.net.errors import NetError
from sparrowmq.net.peers import Peers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.drain import DRAINED_BROKERS
from sparrowmq.protocol.headers.nameserver import (
    NAME_TAKEN,
    DeleteKvConfig,
    GetKvConfig,
    KvConfigFound,
    PutKvConfig,
    RegisterBroker,
    UnregisterBroker,
)
from sparrowmq.protocol.registration import RegisterBrokerBody, body_checksum
from sparrowmq.protocol.route import MASTER_ID
from sparrowmq.protocol.topic_config import RegisteredTopics

_CALL_S = 6.0
"""A name server waits 4 s for a silent master before another one gets its name."""
_AGAIN_S = 2.0
"""How often a lost name server is retried."""


class BrokerNameTaken(Exception):
    """No name server that answers accepts this broker: another master has its name.

    `refusals` are the name servers' texts, by address; each names that master.
    """

    def __init__(self, broker_name: str, refusals: Mapping[str, str]) -> None:
        super().__init__(f"no client would find this broker: {_refusals_text(refusals)}")
        self.broker_name = broker_name
        self.refusals = refusals


def _refusals_text(refusals: Mapping[str, str]) -> str:
    return "; ".join(f"name server {server} says {text}" for server, text in refusals.items())


class _Outcome(Enum):
    """Of one attempt to register with one name server."""

    REGISTERED = auto()
    REFUSED = auto()
    NAME_TAKEN = auto()
    UNREACHED = auto()


class BrokerRegistration:
    """Registers this broker with all name servers, including those that come back."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: Topics,
        drain: Drain,
        peers: Peers,
        *,
        port: int,
        ha_address: str,
        monotonic: Clock,
        log: logging.Logger,
    ) -> None:
        self._config = config
        self.topics = topics
        self._drain = drain
        self._peers = peers
        self._address = config.address(port)
        self._ha_address = ha_address
        self._monotonic = monotonic
        self._log = log
        self._unreached: set[str] = set()
        """Name servers that do not know this broker, including those that refuse it."""
        self._registered: set[str] = set()
        """Name servers that have accepted this broker and that it has not left since."""
        self._taken: dict[str, str] = {}
        """Name servers that refuse it because of its name, and what they say."""
        self._noted: set[str] = set()
        """Name servers that were given the note of a drained broker."""
        self._name_lost: Episode | None = None
        self._why_away = ""
        """Why this broker must not be registered; empty if it may."""
        self._has_tried = False
        self.lost_name = asyncio.Event()
        """Set while every name server that answers says that another master has the name."""
        self.has_name = asyncio.Event()
        """Set if at least one of them knew this broker when last asked."""

    @property
    def rivals(self) -> str:
        """What name servers say about the master that has the name."""
        return _refusals_text(self._taken)

    @property
    def _is_away(self) -> bool:
        return bool(self._why_away) or self._drain.has_left

    def state(self) -> dict[str, str]:
        """Every name server, and why it does not know this broker; empty where it does."""
        missing = dict.fromkeys(self._unreached, "it was not reached, or refuses")
        untried = {} if self._has_tried else dict.fromkeys(self._config.name_servers, "not yet")
        reasons = {**missing, **untried, **self._taken}
        if self._drain.has_left:
            name = self._config.broker_name
            drained = f"this broker is drained; resume it with: sparrowmq broker resume {name}"
            reasons = dict.fromkeys(self._config.name_servers, drained)
        if self._why_away:
            reasons = dict.fromkeys(self._config.name_servers, self._why_away)
        return {server: reasons.get(server, "") for server in self._config.name_servers}

    async def run(self) -> None:
        """Register forever: periodically, and soon after every change of a topic. Changes that come
        together share one round."""
        while True:
            self.topics.changed.clear()
            if self._drain.has_left:
                await self.leave()
                await self._note_everywhere()
            else:
                self._noted.clear()
                await self.register_everywhere()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._config.register_interval_s):
                    await self.watch()

    async def watch(self) -> None:
        """Until a topic changes, register with name servers that were lost."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN_S):
                    await self.topics.changed.wait()
            if self.topics.changed.is_set():
                return  # the next round asks the lost ones, too
            lost = set(self._config.name_servers) - set(self._peers.known()) | self._unreached
            # A name server asks that master and logs a refusal each time: once per round will do.
            lost -= self._taken.keys()
            if lost:
                await self._register_with(sorted(lost))

    async def register_at_start(self) -> None:
        """The first round. Raises BrokerNameTaken."""
        outcomes = await self._try_to_register_with(self._config.name_servers)
        answered = [each for each in outcomes if each is not _Outcome.UNREACHED]
        if answered and all(each is _Outcome.NAME_TAKEN for each in answered):
            raise BrokerNameTaken(self._config.broker_name, dict(self._taken))
        self._report_taken()

    async def register_everywhere(self) -> None:
        """One round. Name servers that cannot be reached are reported and tried again by `run`."""
        await self._register_with(self._config.name_servers)

    async def _register_with(self, servers: Iterable[str]) -> None:
        await self._try_to_register_with(servers)
        self._report_taken()

    async def _try_to_register_with(self, servers: Iterable[str]) -> list[_Outcome]:
        self._has_tried = True
        table = self.topics.table()
        topics = RegisteredTopics(
            topic_config_table=self._drain.registered(table.topic_config_table),
            data_version=table.data_version,
        )
        body = RegisterBrokerBody(topics=topics).encode(compressed=False)
        header = RegisterBroker(
            cluster_name=self._config.cluster_name,
            broker_name=self._config.broker_name,
            broker_id=self._config.broker_id,
            broker_addr=self._address,
            ha_server_addr=self._ha_address,
            enable_acting_master=False,
            compressed=False,
            body_crc32=body_checksum(body),
        )
        return await asyncio.gather(*(self._register(server, header, body) for server in servers))

    async def _register(self, server: str, header: RegisterBroker, body: bytes) -> _Outcome:
        if self._is_away:
            return _Outcome.UNREACHED  # clients would come back to a broker that is about to stop
        try:
            response = await self._peers.call(server, header, body, timeout_s=_CALL_S)
        except NetError as error:
            self._taken.pop(server, None)
            self._report_failure(server, str(error))
            return _Outcome.UNREACHED
        if response.code == NAME_TAKEN:
            self._taken[server] = response.remark
            self._unreached.add(server)
            return _Outcome.NAME_TAKEN
        self._taken.pop(server, None)
        if response.code != ResponseCode.SUCCESS:
            self._report_failure(server, response.remark)
            return _Outcome.REFUSED
        if server in self._unreached:
            self._unreached.discard(server)
            self._log.info("registered with name server %s again", server)
        self._registered.add(server)
        if self._drain.has_left:
            self.topics.changed.set()  # it left meanwhile: the next round takes this back
        return _Outcome.REGISTERED

    def _report_taken(self) -> None:
        """Log that another master has the name: at once, and then every minute."""
        self._judge_name()
        if not self._taken:
            self._name_lost = None
            return
        now_s = self._monotonic() / 1000
        if self._name_lost is None:
            self._name_lost = Episode(now_s)
        if self._name_lost.occurs(now_s):
            self._log.error("clients do not find this broker: %s", _refusals_text(self._taken))

    def _judge_name(self) -> None:
        """Judge whether another master has the name; without any answer the last result stands."""
        if self._unreached.issuperset(self._config.name_servers):
            if self._taken:
                self.has_name.clear()
                self.lost_name.set()
        else:
            self.lost_name.clear()
            self.has_name.set()

    def _report_failure(self, server: str, reason: str) -> None:
        """Log once per outage: a name server may be down for days."""
        if server not in self._unreached:
            self._unreached.add(server)
            self._log.warning("cannot register with name server %s: %s", server, reason)

    def resume(self) -> None:
        """Register again after `unregister`, when a change of roles has failed."""
        self._why_away = ""
        self.topics.changed.set()

    async def unregister(self) -> None:
        """Leave all name servers, until `resume`, so that clients stop coming at once."""
        self.withhold("this broker is stopping")
        await self._unregister_from(self._registered - self._unreached)

    def withhold(self, reason: str) -> None:
        """Do not register, until `resume`."""
        self._why_away = reason

    async def leave(self) -> list[str]:
        """Leave all name servers, as a drained broker does; returns those that did not answer. They
        forget it when it no longer registers, and are notified again until then.

        Leaves only name servers where it is registered: its replacement may have the same name.
        """
        return await self._unregister_from(self._registered)

    async def _note_everywhere(self) -> None:
        """Give every name server the address of this drained master. One that is away gets it in a
        later round."""
        if self._config.broker_id == MASTER_ID:
            await asyncio.gather(*(self._note_at(each) for each in self._config.name_servers))

    async def _note_at(self, server: str) -> None:
        namespace, name = DRAINED_BROKERS, self._config.broker_name
        with suppress(NetError):
            question = GetKvConfig(namespace=namespace, key=name)
            found = await self._peers.call(server, question, timeout_s=_CALL_S)
            if found.code == ResponseCode.SUCCESS:
                is_own = found.header(KvConfigFound).value == self._address
                # Another one's is replaced once: the broker that replaces this one may be drained
                if is_own or server in self._noted:
                    return
            if not self._drain.has_left:
                return
            note = PutKvConfig(namespace=namespace, key=name, value=self._address)
            await self._peers.call(server, note, timeout_s=_CALL_S)
            self._noted.add(server)
            if not self._drain.is_on:  # it was taken back meanwhile
                gone = DeleteKvConfig(namespace=namespace, key=name)
                await self._peers.call(server, gone, timeout_s=_CALL_S)

    async def _unregister_from(self, servers: Iterable[str]) -> list[str]:
        header = UnregisterBroker(
            cluster_name=self._config.cluster_name,
            broker_name=self._config.broker_name,
            broker_id=self._config.broker_id,
            broker_addr=self._address,
        )
        silent = []
        for server in sorted(servers):
            try:
                await self._peers.call(server, header, timeout_s=1.0)
            except NetError:
                silent.append(server)
            else:
                self._registered.discard(server)
        return silent
