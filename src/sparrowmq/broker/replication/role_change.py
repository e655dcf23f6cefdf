"""Planned changes of roles: a master hands over to one of its slaves, and becomes that slave.

```
operator ──HAND_OVER──▶ master                                   slave
                        accepts no more messages, makes all durable
                        waits until the slave has everything ◀── acknowledges
                        leaves the name servers
                        notes its new id
                        ────────────────TAKE_OVER──────────────▶ has the whole log?
                        answers with its tables ◀─────────────── copies them; notes its new id
         ◀──────────────the slave has accepted ◀────────────────
                        starts again, as a slave                 starts again, as the master
```

At no point do two brokers accept messages: the master has stopped before the slave may begin. Each
note is durable before the next step, so a crash leaves no master at worst, never two: the old one
then starts as a slave, finds that the other did not accept, and `sparrowmq broker promote` picks
one. A step that fails before the slave was asked leaves everything unchanged.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from msgspec import field

from sparrowmq.broker.config import MASTER_ID
from sparrowmq.broker.replication.current_role import CurrentRole
from sparrowmq.broker.replication.log_description import LogDescription
from sparrowmq.broker.replication.replication import Role, StartAgain
from sparrowmq.broker.replication.returning_master import brokers_of_name
from sparrowmq.broker.replication.slave_link import SlaveLink
from sparrowmq.broker.replication.table_following import NotCopied
from sparrowmq.broker.replication.table_state import StateUnreadable
from sparrowmq.disk.errors import DiskFull
from sparrowmq.net.errors import NetError
from sparrowmq.net.peers import Peers
from sparrowmq.protocol.body import Body
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.headers.replication import DescribeLog, GetHaStatus, TakeOver
from sparrowmq.store.errors import AppendsHeld, StoreError

if TYPE_CHECKING:
    from sparrowmq.broker.broker import Broker
    from sparrowmq.broker.registration import BrokerRegistration

CATCH_UP_S = 1.0
"""How long a slave may take to get the rest while no messages are accepted."""
_OFFER_S = 2.0
_ASK_S = 1.0
_SLAVES_S = 1.0
_MOST_BEHIND_BYTES = 64 * 1024 * 1024
"""A slave that lacks more is unlikely to get it in time: sends would be held up for nothing."""


_Change: TypeAlias = Callable[[], Awaitable[str]]
"""Changes the role; returns why the broker starts again."""
_Asked: TypeAlias = tuple[_Change, asyncio.Future[None]]


class CannotChange(Exception):
    """The roles stay unchanged; the text says why, and what to do."""


class Inheritance(Body, frozen=True, kw_only=True):
    """What a new master gets from the last one, besides its log."""

    slaves: dict[str, str] = field(default_factory=dict)
    """Addresses of the other slaves, and of the last master, by the broker ids they have now."""


@dataclass(frozen=True, slots=True)
class Successor:
    """A slave that can take over."""

    link: SlaveLink
    address: str
    behind_bytes: int

    @property
    def slave_id(self) -> int:
        """Its broker id, which the old master gets."""
        return self.link.slave_id


class RoleChanger:
    """Changes the role of one broker."""

    def __init__(
        self,
        broker: "Broker",
        current_role: CurrentRole,
        registration: "BrokerRegistration",
        peers: Peers,
    ) -> None:
        self._broker = broker
        self._current_role = current_role
        self._registration = registration
        self._peers = peers
        self._asked: asyncio.Queue[_Asked] = asyncio.Queue(1)
        self._is_changing = False
        self._awaits_slaves = False

    async def run(self) -> None:
        """Wait until the role changes, then raise StartAgain.

        Changes run here and not in the handlers that request them: those are cancelled when the
        asking connection ends.
        """
        await self._await_slaves()
        while True:
            change, outcome = await self._asked.get()
            reason = ""
            try:
                async with self._broker.uncancellable:
                    reason = await change()
            except CannotChange as error:
                self._is_changing = False
                self._broker.log.warning("role change failed: %s", error)
                if not outcome.done():
                    outcome.set_exception(error)
                continue
            if not outcome.done():
                outcome.set_result(None)
            raise StartAgain(reason)

    def begin(self) -> None:
        """Before clients come: after a takeover, refuse sends until enough slaves follow."""
        broker = self._broker
        has_taken_over = self._current_role.took_over_at == broker.store.max_log_offset
        if has_taken_over and broker.replication.is_master and not self._has_copies:
            text = f"{broker.config.broker_name} waits for its slaves; try again"
            broker.refuse_sends("slaves", text)
            self._awaits_slaves = True

    async def _await_slaves(self) -> None:
        """Wait for the slaves, including the last master, which follow within moments. Without this
        wait the first sends would be answered with SLAVE_NOT_AVAILABLE."""
        if self._awaits_slaves:
            with suppress(TimeoutError):
                async with asyncio.timeout(_SLAVES_S):
                    joined = self._broker.replication.feed.joined
                    while not self._has_copies:
                        joined.clear()
                        await joined.wait()
            self._broker.refuse_sends("slaves", "")

    @property
    def _has_copies(self) -> bool:
        replicas = self._broker.replication.replicas
        return replicas.in_sync(self._broker.store.max_log_offset) >= replicas.wanted

    async def _change(self, change: _Change) -> None:
        if self._is_changing:
            raise CannotChange("a change of roles is under way; wait until it has ended")
        self._is_changing = True
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked.put_nowait((change, outcome))
        await outcome

    # ---- the master's side

    def successor(self, slave_id: int | None) -> Successor:
        """The named slave, or the one that has the most. Raises CannotChange if it cannot take over
        in the current state."""
        broker = self._broker
        link = self._chosen(slave_id)
        missing = broker.store.max_log_offset - link.acknowledged
        if missing > _MOST_BEHIND_BYTES:
            raise CannotChange(
                f"slave {link.slave_id} lacks {missing} bytes, at most {_MOST_BEHIND_BYTES} are"
                " waited for; try again when it has caught up"
            )
        address = broker.replication.known_slaves.addresses[link.slave_id]
        return Successor(link, address, missing)

    async def hear_from(self, successor: Successor) -> None:
        """Raise CannotChange unless the slave answers. A slave that froze a moment ago has
        acknowledged everything too, and would leave its name without a master."""
        try:
            await self._peers.call(successor.address, GetHaStatus(), timeout_s=_ASK_S)
        except NetError as error:
            text = f"slave {successor.slave_id} cannot take over: {error}; nothing was changed"
            raise CannotChange(text) from error

    async def hand_over(self, successor: Successor) -> None:
        """Give the role to that slave. Raises CannotChange."""
        await self._change(lambda: self._hand_over_to(successor.link, successor.address))

    async def _hand_over_to(self, link: SlaveLink, address: str) -> str:
        broker, slave_id = self._broker, link.slave_id
        broker.log.info("handing over to broker %d at %s", slave_id, address)
        self._hold(f"{broker.config.broker_name} is being handed over to {address}; try again")
        try:
            await self._until_equal(link)
            await self._registration.unregister()
            await broker.workers.run(self._current_role.become, slave_id)
            await self._offer(address, slave_id)
        except (CannotChange, DiskFull, OSError, StoreError) as error:
            await self._stay_master()
            if isinstance(error, CannotChange):
                raise
            raise CannotChange(f"nothing was changed: {error}") from error
        return f"{address} is the master now: starting again as its slave {slave_id}"

    def _chosen(self, slave_id: int | None) -> SlaveLink:
        """The connection of a slave that can take over. Raises CannotChange."""
        replication, config = self._broker.replication, self._broker.config
        if not replication.is_master:
            raise CannotChange(f"this broker is not a master, it is {replication.role.value}")
        if not config.name_servers:
            raise CannotChange("without name servers neither slaves nor clients find a new master")
        links = {
            each: link
            for each, link in replication.feed.links.items()
            if each in replication.known_slaves.addresses
        }
        if not links:
            raise CannotChange(f"no slave follows {config.broker_name}; start one and try again")
        if slave_id is None:
            return max(links.values(), key=lambda link: link.acknowledged)
        if slave_id not in links:
            ids = ", ".join(map(str, sorted(links)))
            raise CannotChange(f"slave {slave_id} does not follow; slaves that do: {ids}")
        return links[slave_id]

    async def _until_equal(self, link: SlaveLink) -> None:
        """Return when the slave has everything, and everything here is durable."""
        broker = self._broker
        await broker.durability.make_durable()
        await broker.replication.feed.drain(CATCH_UP_S)
        missing = broker.store.max_log_offset - link.acknowledged
        if missing or broker.replication.feed.links.get(link.slave_id) is not link:
            raise CannotChange(
                f"slave {link.slave_id} still lacks {missing} bytes after {CATCH_UP_S:g} s, or has"
                " left; nothing was changed"
            )

    async def _offer(self, address: str, slave_id: int) -> None:
        """Let the slave take over. Raises CannotChange if it certainly did not."""
        broker = self._broker
        known = broker.replication.known_slaves.addresses
        others = {str(each): at for each, at in known.items() if each != slave_id}
        inheritance = Inheritance(slaves=others | {str(slave_id): broker.address})
        question = TakeOver(master_address=broker.address, log_end=broker.store.max_log_offset)
        try:
            answer = await self._peers.call(
                address, question, inheritance.to_json(), timeout_s=_OFFER_S
            )
        except NetError as error:
            if await self._has_accepted(address):
                return
            # It may accept later: there must never be two masters; for a while there may be none.
            broker.log.error(
                "%s did not answer whether it takes over (%s). This broker is its slave from now"
                " on; if no master appears, run: sparrowmq broker promote",
                address,
                error,
            )
            return
        if answer.code != ResponseCode.SUCCESS:
            raise CannotChange(f"{address} does not take over: {answer.remark}")

    async def _has_accepted(self, address: str) -> bool:
        try:
            response = await self._peers.call(address, DescribeLog(), timeout_s=_ASK_S)
            if response.code != ResponseCode.SUCCESS:
                return False
            return LogDescription.from_json(response.body).claim.broker_id == MASTER_ID
        except (NetError, ProtocolError):
            return False

    async def _stay_master(self) -> None:
        """Undo the steps of a change that failed."""
        broker = self._broker
        await broker.workers.run(self._current_role.become, MASTER_ID)
        self._registration.resume()
        self._hold("")

    def _hold(self, reason: str) -> None:
        """Refuse messages and changes of tables for that reason; an empty one accepts all again."""
        broker = self._broker
        broker.is_handing_over = bool(reason)
        broker.refuse_sends("hand-over", reason)
        broker.store.admission.hold("hand-over", reason or None)
        held = AppendsHeld(reason) if reason else None
        broker.saving.held = broker.offset_saving.held = held

    # ---- the slave's side

    async def take_over(self, master: str, log_end: int, inheritance: Inheritance) -> None:
        """Become the master, at the request of the last one. Raises CannotChange."""
        broker, follower = self._broker, self._broker.replication.follower
        if follower is None or broker.replication.role is not Role.SLAVE:
            raise CannotChange(f"this broker is not a slave, it is {broker.replication.role.value}")
        if follower.master_address != master:
            followed = follower.master_address or "no master"
            raise CannotChange(f"this broker follows {followed}, not {master}")
        own_end = broker.store.max_log_offset
        if own_end != log_end:
            raise CannotChange(f"this log ends at {own_end}, that of the master at {log_end}")
        await self._change(lambda: self._take_over(inheritance, log_end))

    async def _take_over(self, inheritance: Inheritance, log_end: int) -> str:
        """Take over. The master waits for the answer and changes nothing: its tables are final."""
        following = self._broker.table_following
        assert following is not None, "a slave follows tables"
        try:
            if not await following.copy_now():
                raise CannotChange("the master's tables belong to another log than this one")
        except (NetError, ProtocolError, StateUnreadable, NotCopied, DiskFull) as error:
            raise CannotChange(f"the master's tables cannot be copied: {error}") from error
        return await self._become_master(inheritance, took_over_at=log_end)

    def check_loss(self, accept_loss: str) -> None:
        """Raise CannotChange unless there is no master to hand over and the operator accepts the
        loss by naming the broker."""
        broker, follower = self._broker, self._broker.replication.follower
        name = broker.config.broker_name
        if follower is None or broker.replication.role is not Role.SLAVE:
            raise CannotChange(f"this broker is not a slave, it is {broker.replication.role.value}")
        if follower.master_address:
            raise CannotChange(
                f"its master {follower.master_address} is alive: without --accept-loss it hands"
                " over, and nothing is lost"
            )
        if accept_loss != name:
            raise CannotChange(
                f"the master of {name} does not answer, and may have messages that this slave"
                f" lacks; to continue without them, add --accept-loss {name}"
            )

    async def check_no_master(self) -> None:
        """Raise CannotChange if the registered master answers. It does not feed this slave, but the
        name servers would refuse a second one."""
        config = self._broker.config
        async for brokers in brokers_of_name(config, self._peers):
            address = brokers.get(MASTER_ID)
            if address is not None and await self._is_master(address):
                raise CannotChange(
                    f"{address}, the registered master of {config.broker_name}, answers, though it"
                    " does not feed this slave; stop it and try again"
                )

    async def _is_master(self, address: str) -> bool:
        """Whether a master of this name answers there. Apache's does not know the question."""
        try:
            response = await self._peers.call(address, DescribeLog(), timeout_s=_ASK_S)
            if response.code != ResponseCode.SUCCESS:
                return True
            claim = LogDescription.from_json(response.body).claim
        except (NetError, ProtocolError):
            return False
        config = self._broker.config
        is_copy = claim.is_copy_of(config.cluster_name, config.broker_name)
        return is_copy and claim.broker_id == MASTER_ID

    async def take_over_from_none(self) -> None:
        """Become the master when none hands over. Raises CannotChange."""
        await self._change(lambda: self._become_master(Inheritance(), took_over_at=None))

    async def _become_master(self, inheritance: Inheritance, took_over_at: int | None) -> str:
        broker = self._broker
        known = broker.replication.known_slaves
        # The last master has this id now if it handed over.
        id_before = broker.config.broker_id if took_over_at is None else None
        try:
            await broker.durability.make_durable()
            # Slaves that it knows from being a master long ago are not asked for lost messages.
            for broker_id in [each for each in known.slaves if str(each) not in inheritance.slaves]:
                await broker.workers.run(known.forget, broker_id)
            for key, address in inheritance.slaves.items():
                await broker.workers.run(known.remember, int(key), address)
            await broker.workers.run(
                lambda: self._current_role.become(
                    MASTER_ID, took_over_at=took_over_at, id_before=id_before
                )
            )
        except (DiskFull, OSError, StoreError) as error:
            raise CannotChange(f"this broker cannot note its new role: {error}") from error
        return "this broker is the master now: starting again"
