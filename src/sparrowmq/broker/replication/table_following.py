"""A slave keeps its tables equal to those of the master that it follows.

```
following ─▶ ask for what changed ─▶ wait until the log has reached it ─▶ apply ─▶ pause ─┐
    ▲  ▲                                        │                                         │
    │  └────────── the master is lost ◀─────────┘                                         │
    └─────────────────────────────────────────────────────────────────────────────────────┘
```

One state at a time: while one waits for the log, the slave asks for no other. A slave that is far
behind would otherwise replace each by a newer one and never apply any. The pause is short enough to
keep tables less than a second old, and lets a busy master answer three questions a second, each
with what changed, instead of one for every commit. An Apache master can only give whole tables
(`apache_tables.py`), and is asked less often.
"""

import asyncio

import msgspec

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.replication import apache_tables
from sparrowmq.broker.replication.apache_master import ApacheMaster
from sparrowmq.broker.replication.follower import Follower, NotFollowing
from sparrowmq.broker.replication.table_copy import (
    apply_state,
    life_of,
    save_delivery,
    write_epochs,
)
from sparrowmq.broker.replication.table_rules import OffsetChange, When, when_to_apply
from sparrowmq.broker.replication.table_state import (
    StateUnreadable,
    TableCounts,
    TableQuestion,
    TableState,
    decode_state,
)
from sparrowmq.disk.errors import DiskFull
from sparrowmq.net.errors import NetError
from sparrowmq.net.peers import Peers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.headers.replication import CopyTables, CopyTablesAnswer

ASK_EVERY_S = 0.3
_MOST_SENT = 10_000
"""Offsets in one question: less than a megabyte, and about 20 ms of the master's time."""
_ANSWER_S = 10.0
_AGAIN_S = 1.0


class NotCopied(Exception):
    """The master gave no tables; the text says why."""


class TableFollowing:
    """Keeps a slave's copy of its master's tables up to date. `run` follows forever."""

    def __init__(self, broker: Broker, follower: Follower, peers: Peers) -> None:
        self._broker = broker
        self._follower = follower
        self._peers = peers
        self._have = TableCounts()
        self._failures = 0
        """Consecutive failures."""
        self._complaint = ""
        self._copying = asyncio.Lock()
        broker.delivery.timers.is_copy = True

    async def run(self) -> None:
        """Follow the master's tables as long as its log is followed. Raises OSError when the disk
        has failed."""
        broker = self._broker
        loop = asyncio.get_running_loop()
        save_at_s = loop.time() + broker.config.offsets_save_s
        while True:
            pause_s = ASK_EVERY_S
            if self._follower.follows_apache:
                pause_s = apache_tables.ASK_EVERY_S
            try:
                if self._follower.master_address:
                    await self.copy_now()
                async with broker.uncancellable:
                    is_due = loop.time() >= save_at_s
                    await save_delivery(broker, whole=is_due)
                if is_due:
                    save_at_s = loop.time() + broker.config.offsets_save_s
                self._failures = 0
            except (
                *(NetError, ProtocolError, StateUnreadable, NotCopied, NotFollowing),
                DiskFull,
            ) as error:
                self._complain(str(error))
                pause_s = _AGAIN_S
            await asyncio.sleep(pause_s)

    async def close(self) -> None:
        """Save how far the master had delivered. The log must be durable. Raises DiskFull."""
        for _ in range(2):  # first what was waiting to become durable, then what was applied last
            await save_delivery(self._broker, whole=True)

    async def copy_now(self) -> bool:
        """Make the tables equal to the master's current ones; False if another master is followed
        by then.

        Raises NetError, ProtocolError, StateUnreadable, NotCopied, DiskFull or OSError.
        """
        async with self._copying:
            return await self._copy_once()

    async def _copy_once(self) -> bool:
        session = self._follower.session
        state = await self._ask(self._follower.master_address)
        return await self._apply(state, session)

    async def take(self, state: TableState, master: str) -> bool:
        """Apply the tables that the master gives before it stops; False if another master is
        followed by then. Raises NotCopied for a broker that is not the master, DiskFull or
        OSError."""
        async with self._copying:
            if self._follower.master_address != master:
                followed = self._follower.master_address or "no master"
                raise NotCopied(f"this broker follows {followed}, not {master}")
            return await self._apply(state, self._follower.session)

    async def _apply(self, state: TableState, session: int) -> bool:
        """Apply a state when the log has reached it; False if it never will."""
        store, follower = self._broker.store, self._follower
        if follower.session == session and state.counts.life == life_of(store):
            follower.show_to(state.slaves_show_to)  # about the log, whose end may be yet to come
        while True:
            when = when_to_apply(
                life=state.counts.life,
                log_end=state.log_end,
                followed_life=life_of(store),
                own_log_end=store.max_log_offset,
            )
            if follower.session != session or when is When.NEVER:
                return False
            if when is When.NOW:
                epochs = await write_epochs(self._broker, state)
                if follower.session != session:
                    return False
                await apply_state(self._broker, state, epochs)
                self._have = state.counts
                return True
            await follower.moves_on()

    async def _ask(self, address: str) -> TableState:
        if self._follower.follows_apache:
            return await apache_tables.ask_tables(self._broker, ApacheMaster(address, self._peers))
        offsets, progress = self._broker.offsets, self._progress()
        question = msgspec.json.encode(TableQuestion(self._have, progress))
        is_sent = False
        try:
            answer = await self._peers.call(address, CopyTables(), question, timeout_s=_ANSWER_S)
            is_sent = answer.code == ResponseCode.SUCCESS
        finally:
            if not is_sent:
                offsets.mark_unsent(progress)
        if not is_sent:
            raise NotCopied(f"{address} refuses: {answer.remark}")
        is_deflated = answer.header(CopyTablesAnswer).is_deflated
        if not is_deflated:
            return decode_state(answer.body, is_deflated=False)
        return await self._broker.workers.run(_inflated, answer.body)

    def _progress(self) -> list[OffsetChange]:
        """Offsets that were committed here and that the master may lack.

        Empty until a state of the master's current life is applied: the master may have deleted and
        recreated a topic since these commits.
        """
        is_known = self._have.life == life_of(self._broker.store)
        return self._broker.offsets.take_unsent(_MOST_SENT) if is_known else []

    def _complain(self, reason: str) -> None:
        """Log once per cause, and not the first failure: a lost master is no longer followed at the
        next try, and the loss has already been reported."""
        self._failures += 1
        if self._failures > 1 and reason != self._complaint:
            self._complaint = reason
            self._broker.log.warning("tables are not copied from the master: %s", reason)


def _inflated(body: bytes) -> TableState:
    return decode_state(body, is_deflated=True)
