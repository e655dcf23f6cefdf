"""Senders and readers of a replicated broker, and what they observe.

A message counts as `ok` only when its broker answered SEND_OK and the sender had asked to wait for
copies. A message that was seen is noted with the offset of its queue; it may vanish afterwards only
by a promotion, where its broker had given its copies up before it was seen.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from sparrowmq.net.errors import NetError
from sparrowmq.protocol.batch import encode_batch
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import HeaderError
from sparrowmq.protocol.headers.send import SendBack, SendBatchMessage, SendMessageV2
from sparrowmq.protocol.names import AUTO_CREATE_TOPIC
from sparrowmq.protocol.properties import format_properties
from sparrowmq.testing.sim_cluster import RunningCluster
from sparrowmq.testing.sim_nodes import BrokerNode
from sparrowmq.testing.wire import Refused, Wire, wire

TOPIC, SHORT_LIVED = "orders", "short-lived"
QUEUES = 2
GROUP = "billing"
_BATCH = 3
_PAUSE_S = 0.2


class Kind(Enum):
    """How a message is sent."""

    SINGLE = "single"
    BATCH = "batch"
    ONEWAY = "one-way"
    NO_WAIT = "WAIT=false"
    DELAYED = "delayed"
    SEND_BACK = "send back"
    SHORT_LIVED = "to a topic that is deleted now and then"


_WEIGHTS = {Kind.SINGLE: 6, Kind.BATCH: 2}


@dataclass
class Ledger:
    """What clients know."""

    attempted: set[str] = field(default_factory=set)
    ok: dict[str, int] = field(default_factory=dict)
    """Acknowledged messages, and the log offset that each was acknowledged with."""
    short: int = 0
    """Answered with SLAVE_NOT_AVAILABLE or FLUSH_SLAVE_TIMEOUT."""
    seen: dict[tuple[int, int], str] = field(default_factory=dict)
    """By queue and queue offset, what a consumer saw."""
    only_on_master: set[tuple[int, int]] = field(default_factory=set)
    """Where messages were seen whose copies the master had given up."""
    reused: list[str] = field(default_factory=list)
    """Offsets at which a consumer saw another message later."""

    def master_is_lost(self) -> None:
        """A slave takes over, and may lack what its master had given up."""
        for place in self.only_on_master:
            self.seen.pop(place, None)
        self.only_on_master.clear()


def id_of(body: bytes) -> str:
    """The id that a body begins with."""
    return body.partition(b"|")[0].decode()


class Sender:
    """Sends one message after the other to the broker that is the master now."""

    def __init__(
        self,
        sim: RunningCluster,
        name: str,
        ledger: Ledger,
        master: Callable[[], BrokerNode],
        acknowledged: Callable[[str, int], None],
    ) -> None:
        """`acknowledged` is called with every id and log offset that SEND_OK was answered for."""
        self.name = name
        self._sim = sim
        self._ledger = ledger
        self._master = master
        self._acknowledged = acknowledged
        self._rng = sim.rng(name)
        self._number = 0
        self._last_ok = -1

    async def send_forever(self) -> None:
        kinds = list(Kind)
        weights = [_WEIGHTS.get(kind, 1) for kind in kinds]
        async with wire(self.name, self._sim.clock) as connections:
            while True:
                (kind,) = self._rng.choices(kinds, weights)
                with suppress(NetError, Refused):  # unknown: it may be there or not
                    await self._send(connections, kind)
                await asyncio.sleep(self._rng.random() * _PAUSE_S)

    async def _send(self, connections: Wire, kind: Kind) -> None:
        address = self._master().address
        if kind is Kind.SEND_BACK:
            if self._last_ok >= 0:
                given_back = SendBack(offset=self._last_ok, group=GROUP, delay_level=1)
                await connections.call(address, given_back)
            return
        names = [self._next_id() for _ in range(_BATCH if kind is Kind.BATCH else 1)]
        if kind is Kind.ONEWAY:
            await connections.send_oneway(
                address, self._header(names[0], kind), self._body(names[0])
            )
            return
        if kind is Kind.BATCH:
            fields = [(0, self._body(name), self._properties(name, kind)) for name in names]
            header = SendBatchMessage(**msgspec.structs.asdict(self._header("", kind)))
            response = await connections.call(address, header, encode_batch(fields))
        else:
            response = await connections.call(
                address, self._header(names[0], kind), self._body(names[0])
            )
        self._note(response.code, names, kind, response.ext_fields or {})

    def _note(self, code: int, names: list[str], kind: Kind, fields: Mapping[str, str]) -> None:
        if code in (ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT):
            self._ledger.short += len(names)
        if code != ResponseCode.SUCCESS or kind in (Kind.NO_WAIT, Kind.SHORT_LIVED):
            return
        for name, message_id in zip(names, fields["msgId"].split(","), strict=True):
            # The last 8 bytes of an offset id.
            log_offset = int(message_id[-16:], 16)
            self._acknowledged(name, log_offset)
            self._ledger.ok[name] = self._last_ok = log_offset

    def _next_id(self) -> str:
        self._number += 1
        name = f"{self.name}-{self._number}"
        self._ledger.attempted.add(name)
        return name

    def _body(self, name: str) -> bytes:
        return f"{name}|".encode().ljust(self._rng.randrange(1500), b".")

    def _properties(self, name: str, kind: Kind) -> bytes:
        properties = {"UNIQ_KEY": name, "KEYS": f"k-{name}"}
        if kind is Kind.NO_WAIT:
            properties["WAIT"] = "false"
        if kind is Kind.DELAYED:
            properties["DELAY"] = "1"
        return format_properties(properties).encode()

    def _header(self, name: str, kind: Kind) -> SendMessageV2:
        return SendMessageV2(
            producer_group="shop",
            topic=SHORT_LIVED if kind is Kind.SHORT_LIVED else TOPIC,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=QUEUES,
            queue_id=self._rng.randrange(QUEUES),
            sys_flag=0,
            born_timestamp=self._sim.clock(),
            flag=0,
            properties=self._properties(name, kind).decode() if name else "",
            batch=kind is Kind.BATCH,
        )


class Reader:
    """Reads the queues of the broker that is the master now, and follows where it is sent."""

    name = "reader"

    def __init__(
        self, sim: RunningCluster, ledger: Ledger, master: Callable[[], BrokerNode]
    ) -> None:
        self._sim = sim
        self._ledger = ledger
        self._master = master
        self._positions = dict.fromkeys(range(QUEUES), 0)

    async def read_forever(self) -> None:
        async with wire(self.name, self._sim.clock) as connections:
            while True:
                for queue_id in self._positions:
                    try:
                        await self._read(connections, queue_id)
                    except (NetError, Refused, HeaderError):  # a draining broker rejects pulls
                        await asyncio.sleep(0.2)

    async def _read(self, connections: Wire, queue_id: int) -> None:
        node, offset = self._chosen(), self._positions[queue_id]
        life = node.server
        pulled = await connections.pull(
            node.address, TOPIC, queue_id=queue_id, offset=offset, wait_s=0.3, count=8
        )
        if node.server is not life or not node.is_running:
            return  # which messages it had given up is not known any more
        given_up = self._given_up(node)
        for message in pulled.messages:
            name, place = id_of(message.body), (queue_id, message.queue_offset)
            before = self._ledger.seen.get(place)
            if before is not None and before != name:
                self._ledger.reused.append(f"queue {place}: {name}, after {before} was seen there")
            self._ledger.seen[place] = name
            if message.record.log_offset < given_up:
                self._ledger.only_on_master.add(place)
        self._positions[queue_id] = pulled.next_offset

    def _chosen(self) -> BrokerNode:
        """The broker to read from."""
        return self._master()

    def _given_up(self, node: BrokerNode) -> int:
        """Messages before this log offset may be on that broker alone."""
        return node.broker.replication.replicas.given_up


class SlaveReader(Reader):
    """Reads the same queues from any of the slaves whose log is the master's.

    What one of them shows is there: the slave has it, and a slave that lacks it is not promoted.
    """

    name = "slave-reader"

    def __init__(
        self,
        sim: RunningCluster,
        ledger: Ledger,
        master: Callable[[], BrokerNode],
        slaves: Callable[[], Sequence[BrokerNode]],
    ) -> None:
        super().__init__(sim, ledger, master)
        self._slaves = slaves
        self._rng = sim.rng(self.name)

    def _chosen(self) -> BrokerNode:
        return self._rng.choice(self._slaves() or [self._master()])

    def _given_up(self, node: BrokerNode) -> int:
        return super()._given_up(node) if node is self._master() else 0
