"""After a freeze a master asks whether it is still the master before it promises anything.

```
serving ──▶ frozen (SIGSTOP, a machine that froze)     ──▶ unsure: sends are refused, and
   ▲                                                       │ reports of slaves confirm nothing
   └───────── no answer names another master ◀─────────────┘ name servers and slaves are asked
```

Its slave may have been promoted meanwhile. Clients that are still connected would get
acknowledgements for messages that the new master will never have: another slave may follow this
master for a few more seconds.

When a process resumes, it reads what clients have sent before its timers fire. If sends wait for
slaves, what is read first is stored and not acknowledged, because handling a slave's report checks
the clock; there are few of those. If they do not, every append checks it first, on masters that
have slaves only: others pay nothing.

If neither name servers nor slaves answer, the last known state stands. The clock is the loop's,
which itself stops while a whole machine is suspended.
"""

import asyncio
import math
from contextlib import suppress
from typing import TYPE_CHECKING

from sparrowmq.broker.replication.returning_master import find_rival
from sparrowmq.net.peers import Peers

if TYPE_CHECKING:
    from sparrowmq.broker.broker import Broker
    from sparrowmq.broker.registration import BrokerRegistration

FREEZE_S = 3.0
"""Shorter than all waits for an answer that decide that this master is gone: a name server gives
its name away after 4 s (`nameserver/handlers/registration.py`)."""
TICK_S = FREEZE_S / 4
_AGAIN_S = 2.0


class FreezeWatch:
    """Notices that a master was frozen, and lets it serve again if it is still the master."""

    def __init__(
        self,
        broker: "Broker",
        registration: "BrokerRegistration",
        peers: Peers,
    ) -> None:
        self._broker = broker
        self._registration = registration
        self._feed = broker.replication.feed
        self._peers = peers
        self._loop = asyncio.get_running_loop()
        self._noticed = asyncio.Event()
        self._is_guarding = False

    async def run(self) -> None:
        """Runs as long as the broker serves, on masters with name servers."""
        feed = self._feed
        feed.overslept = self._notice
        try:
            while True:
                feed.awake_until_s = self._loop.time() + FREEZE_S
                self._guard_appends()
                with suppress(TimeoutError):
                    async with asyncio.timeout(TICK_S):
                        await self._noticed.wait()
                if self._loop.time() > feed.awake_until_s:
                    self._notice()
                if self._noticed.is_set():
                    await self._make_sure()
                    self._noticed.clear()
        finally:
            feed.awake_until_s = math.inf
            self._broker.store.admission.set_guard(None)

    @property
    def _has_slaves(self) -> bool:
        """Whether a slave can take over. Apache's are not remembered."""
        known = self._broker.replication.known_slaves.slaves
        return bool(known) or self._feed.admits_strangers

    def _guard_appends(self) -> None:
        """Check the clock before every append, where acknowledgements wait for no slave."""
        is_needed = self._broker.durability.copies is None and self._has_slaves
        if is_needed is not self._is_guarding:
            self._is_guarding = is_needed
            self._broker.store.admission.set_guard(self._look if is_needed else None)

    def _look(self) -> None:
        if self._loop.time() > self._feed.awake_until_s:
            self._notice()

    def _notice(self) -> None:
        """Called by the timer, and before a slave's report or an append counts, whichever comes
        first."""
        feed = self._feed
        stood_s = self._loop.time() - feed.awake_until_s + FREEZE_S
        feed.awake_until_s = math.inf
        if not self._has_slaves:
            return  # no broker can have taken over
        feed.is_unsure = True
        text = (
            f"this broker was frozen for {stood_s:.0f} s and checks whether it is still the master"
        )
        self._broker.log.warning("%s", text)
        self._refuse(f"{text}; try again")
        self._noticed.set()

    async def _make_sure(self) -> None:
        """Return when no name server and no slave that answers knows another master."""
        broker, registration = self._broker, self._registration
        known, before = broker.replication.known_slaves, ""
        while True:
            await registration.register_everywhere()
            rival = await find_rival(broker.config, known, self._peers, broker.address)
            if rival and rival != before:
                text = f"there is another master of {broker.config.broker_name}: {rival}"
                broker.log.error("messages are refused: %s", text)
                self._refuse(f"{text}; stop one of them")
            if not rival and not registration.lost_name.is_set():
                break
            before = rival
            await asyncio.sleep(_AGAIN_S)
        self._refuse("")
        self._feed.is_sure()

    def _refuse(self, reason: str) -> None:
        self._broker.refuse_sends("freeze", reason)
        self._broker.store.admission.hold("freeze", reason or None)
