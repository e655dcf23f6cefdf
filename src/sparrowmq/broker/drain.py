"""Draining: a broker is emptied so that it can be stopped without losing anything.

```
serving ──begin──▶ draining ──everything is finished──▶ left
   ▲                  │                                   │
   └──────────────────┴────────────── resume ─────────────┘
```

Draining: its topics are registered without write permission, and sends of clients are refused.
Whatever is in progress still finishes here: retries, due delayed messages, commits, dead letters.
Left: it is not registered, and answers only clients that know its address. The state is in a table
file, so it survives a restart or a crash.

Refusals begin a little later than the registration. Java and Go raise a refusal of an asynchronous
send, and Java of an ordered one, instead of trying another broker; but all of them ask for routes
every 30 s. Producers, if there are any, get that long to move elsewhere by themselves.
"""

import asyncio
from contextlib import suppress

from sparrowmq.broker.table_saving import TableSaving
from sparrowmq.broker.tables import BrokerTables
from sparrowmq.broker.topics import Topics
from sparrowmq.clock import Clock
from sparrowmq.protocol.drain import DrainState, DrainTable, drain_refusal
from sparrowmq.protocol.names import is_retry_topic
from sparrowmq.protocol.perm import PERM_WRITE
from sparrowmq.protocol.topic_config import TopicConfig
from sparrowmq.store.table_file import TableFile


class Drain:
    """The drain state of one broker. A change is saved and registered soon."""

    def __init__(
        self,
        table: DrainTable,
        *,
        broker_name: str,
        reply_topic: str,
        topics: Topics,
        clock: Clock,
        file: TableFile[DrainTable],
        saving: TableSaving,
    ) -> None:
        self._table = table
        self._broker_name = broker_name
        self._reply_topic = reply_topic
        self._topics = topics
        self._clock = clock
        self.file = file
        self._saving = saving
        self._refuses_at_s = 0.0
        self._changed = asyncio.Event()
        self.refusal = ""
        """Why sends of clients are refused; empty if they are not."""
        if self.is_on:
            self._refuse()

    @classmethod
    def open(
        cls,
        tables: BrokerTables,
        saving: TableSaving,
        topics: Topics,
        clock: Clock,
        *,
        broker_name: str,
        cluster_name: str,
    ) -> "Drain":
        """Open with the saved state. A broker that starts while draining refuses sends at once: its
        producers' sends have failed anyway. Raises TableMissing."""
        return cls(
            tables.load_drain(),
            broker_name=broker_name,
            reply_topic=f"{cluster_name}_REPLY_TOPIC",
            topics=topics,
            clock=clock,
            file=tables.drain,
            saving=saving,
        )

    # ---- the state

    @property
    def state(self) -> DrainState:
        """Serving, draining or left."""
        return self._table.state

    @property
    def since_ms(self) -> int:
        """When the drain began; 0 while serving."""
        return self._table.since_ms

    @property
    def is_on(self) -> bool:
        """Whether it is draining or has left."""
        return self._table.state is not DrainState.SERVING

    @property
    def has_left(self) -> bool:
        """Whether it must not be registered."""
        return self._table.state is DrainState.LEFT

    def passes(self, topic: str) -> bool:
        """Whether a send finishes something in progress: a retry or a reply."""
        return is_retry_topic(topic) or topic == self._reply_topic

    def registered(self, topics: dict[str, TopicConfig]) -> dict[str, TopicConfig]:
        """The topics as name servers should know them."""
        if not self.is_on:
            return topics
        return {name: topic.with_perm(topic.perm & ~PERM_WRITE) for name, topic in topics.items()}

    @property
    def words(self) -> str:
        """The state as text for operators; empty while serving."""
        match self.state:
            case DrainState.SERVING:
                return ""
            case DrainState.DRAINING if self.refusal:
                return "drains: it takes no new messages"
            case DrainState.DRAINING:
                return "begins to drain: producers are still turning to other brokers"
            case DrainState.LEFT:
                return "is drained: it is not registered"

    # ---- changing the state

    def begin(self, grace_s: float) -> None:
        """Accept no new messages. No effect if the drain has already begun."""
        if self.is_on:
            return
        self._set(DrainState.DRAINING)
        self._refuses_at_s = asyncio.get_running_loop().time() + grace_s
        if not grace_s:
            self._refuse()

    def leave(self) -> None:
        """Leave the name servers."""
        self._set(DrainState.LEFT)

    def end(self) -> None:
        """Accept messages again."""
        if self.is_on:
            self.refusal = ""
            self._set(DrainState.SERVING)

    def follow(self, table: DrainTable) -> None:
        """Take over a master's state. A slave refuses sends because of its role."""
        if table != self._table:
            self._table = table
            self._saving.changed(self)
            self._topics.changed.set()

    def _set(self, state: DrainState) -> None:
        since_ms = self.since_ms or self._clock()
        self._table = DrainTable(
            state=state, since_ms=0 if state is DrainState.SERVING else since_ms
        )
        self._saving.changed(self)
        # Name servers ignore a topic table whose version they already have
        self._topics.touch()
        self._changed.set()

    def _refuse(self) -> None:
        self.refusal = drain_refusal(self._broker_name)
        self._topics.forget_checked()

    async def run(self) -> None:
        """Forever: begin to refuse when the producers' grace period is over."""
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            is_waiting = self.is_on and not self.refusal
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._refuses_at_s if is_waiting else None):
                    await self._changed.wait()
            if self.is_on and not self.refusal and loop.time() >= self._refuses_at_s:
                self._refuse()

    # ---- the file of the state

    def table(self) -> DrainTable:
        """As it is saved and handed to slaves."""
        return self._table

    def was_saved(self, table: DrainTable) -> None:
        """Ignored: nothing here depends on a save."""
