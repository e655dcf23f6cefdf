"""Masters that freeze or lose their power are dropped after seconds if a slave can stand in.

```
heard from ── silent for 10 s ─▶ asked ── silent for 3 s ─▶ asked again, and its slaves ─▶ dropped
    ▲                              │                          │
    └────────── it answers ────────┴── it answers, or no slave does: nothing changes ──┘
```

Brokers report every 30 s and may be silent for two minutes. A host that froze closes no connection,
and clients would ask its master all that time, although a slave has the messages. Without a slave
nothing is won by dropping a master, so those keep their two minutes.

A master that is dropped while it lives costs its senders seconds: it registers again when it finds
its connection closed. So it is dropped only after two questions in a row, 6 s without any sign of
life, and only if a slave answers within the same time: otherwise the name server may be the one
that was frozen or cut off. Questions go over the connection that the broker registered with, so
they need no address that this host can reach. A refusal is an answer: Apache's brokers serve no
requests there.
"""

import asyncio
from typing import TYPE_CHECKING

from sparrowmq.nameserver.brokers import BrokerGroup, LiveBroker
from sparrowmq.net.connection import Connection
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.headers.admin import GetRuntimeInfo

if TYPE_CHECKING:
    from sparrowmq.nameserver.server import NameServer

SILENT_MS = 10_000
"""A master with slaves is asked after being silent for this long."""
_ANSWER_S = 3.0
_LOOK_S = 1.0


async def answers(broker: LiveBroker, timeout_s: float) -> bool:
    """Whether a broker answers over the connection it registered with."""
    assert isinstance(broker.session, Connection)
    try:
        await broker.session.call(GetRuntimeInfo(), timeout_s=timeout_s)
    except NetError:
        return False
    return True


async def watch_masters(server: "NameServer") -> None:
    """Forever ask masters with slaves that have been silent for a while, and drop those that do
    not answer."""
    while True:
        await asyncio.sleep(_LOOK_S)
        now_ms = server.clock()
        silent = [
            (group, master)
            for group in server.table.groups.values()
            if (master := group.master) is not None
            and len(group.members) > 1
            and now_ms - master.heard_ms > SILENT_MS
        ]
        if silent:
            await asyncio.gather(*(_ask(server, group, master) for group, master in silent))


async def _ask(server: "NameServer", group: BrokerGroup, master: LiveBroker) -> None:
    if await answers(master, _ANSWER_S):
        master.answered_ms = server.clock()
        return
    heard_ms = master.heard_ms
    slaves = [broker for broker in group.members.values() if broker is not master]
    is_alive, *slaves_are = await asyncio.gather(
        *(answers(broker, _ANSWER_S) for broker in (master, *slaves))
    )
    if is_alive:
        master.answered_ms = server.clock()
    elif any(slaves_are) and group.master is master and master.heard_ms == heard_ms:
        server.drop_silent(master, "does not answer, and a slave of it does")
