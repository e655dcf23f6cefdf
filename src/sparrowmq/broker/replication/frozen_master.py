"""After a freeze a master asks whether it is still the master before it promises anything.

```
serving ──▶ frozen (SIGSTOP, a machine that froze)     ──▶ unsure: sends are refused, and
   ▲                                                       │ reports of slaves confirm nothing
   └───────── no answer names another master ◀─────────────┘ name servers and slaves are asked
```

Its slave may have been promoted meanwhile. Clients that are still connected would get
acknowledgements for messages that the new master will never have: another slave may follow this
master for a few more seconds.

When a process resumes, it reads what clients have sent before its timers fire. A check in every
read would cost every send. So what is read first is stored, but if an acknowledgement takes a slave
it is not acknowledged, because handling a slave's report checks the clock. There are few of those.

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

    async def run(self) -> None:
        """Runs as long as the broker serves, on masters with name servers."""
        feed = self._feed
        feed.overslept = self._notice
        try:
            while True:
                feed.awake_until_s = self._loop.time() + FREEZE_S
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

    def _notice(self) -> None:
        """Called by the timer or before a slave's report counts, whichever comes first."""
        feed = self._feed
        stood_s = self._loop.time() - feed.awake_until_s + FREEZE_S
        feed.awake_until_s = math.inf
        if not (self._broker.replication.known_slaves.slaves or feed.admits_strangers):
            return  # no slave can have taken over; Apache's are not remembered
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
