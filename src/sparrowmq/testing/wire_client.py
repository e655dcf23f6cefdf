"""A client that says exactly what a test wants said: single requests, no state of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from sparrowmq.net.calls import Response
from sparrowmq.net.peers import Peers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.pull import Pulled, PullMessage
from sparrowmq.protocol.headers.send import MessageSent, SendMessageV2
from sparrowmq.protocol.message_ext import MessageExt, decode_messages
from sparrowmq.protocol.names import AUTO_CREATE_TOPIC
from sparrowmq.protocol.properties import format_properties
from sparrowmq.protocol.sys_flag import PULL_SUBSCRIPTION, PULL_SUSPEND
from sparrowmq.testing.simulation import Simulation
from sparrowmq.testing.virtual_time import SimTask

T = TypeVar("T")

CALL_S = 3.0
PULL_PATIENCE_S = 10.0
"""How much longer than the broker's wait a pull may take, as Java's client has it."""


class Refused(Exception):
    """The server answered with something else than success."""

    def __init__(self, response: Response) -> None:
        super().__init__(f"answered {response.code}: {response.remark}")
        self.code = response.code


@dataclass(frozen=True, slots=True)
class PullResult:
    """What a pull brought; `code` tells why it brought nothing."""

    code: int
    next_offset: int
    messages: tuple[MessageExt, ...]

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


class WireClient:
    """Lives on a host of its own. Each request is a task: `sim.wait` gives its result."""

    def __init__(self, sim: Simulation, name: str, broker_address: str) -> None:
        self.host = sim.host(name)
        self.name = name
        self._sim = sim
        self._broker_address = broker_address
        self._peers: Peers | None = None

    def connect(self) -> None:
        """Begin to exist, also again after the host was killed."""
        ready = asyncio.Event()
        self.host.start(self._live(ready), name=f"{self.name} connections")
        self._sim.until(ready.is_set)

    async def _live(self, ready: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._peers = Peers(tasks, log=logging.getLogger(f"sparrowmq.sim.{self.name}"))
            ready.set()
            await asyncio.Event().wait()

    def disconnect(self) -> None:
        """Close every connection."""
        assert self._peers is not None
        for address in self._peers.known():
            self._peers.drop(address)

    def call(
        self,
        header: RequestHeader,
        body: bytes = b"",
        *,
        address: str = "",
        timeout_s: float = CALL_S,
    ) -> SimTask[Response]:
        """Send any request, to the first broker unless told otherwise."""
        return self._start(self._call(header, body, address, timeout_s))

    def send(
        self, topic: str, body: bytes, *, queue_id: int = 0, address: str = "", **properties: str
    ) -> SimTask[MessageSent]:
        """Send a message. The task raises `Refused`, or what the connection raises."""
        return self._start(self._send(topic, body, queue_id, address, properties))

    def pull(
        self,
        topic: str,
        *,
        queue_id: int = 0,
        offset: int = 0,
        wait_s: float = 0.0,
        tags: str = "*",
        group: str = "sim",
        count: int = 32,
        address: str = "",
    ) -> SimTask[PullResult]:
        """Pull; with `wait_s` it waits at the broker while there is nothing."""
        header = PullMessage(
            consumer_group=group,
            topic=topic,
            queue_id=queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=PULL_SUBSCRIPTION | (PULL_SUSPEND if wait_s else 0),
            commit_offset=0,
            suspend_timeout_millis=int(wait_s * 1000),
            sub_version=0,
            subscription=tags,
            expression_type="TAG",
        )
        return self._start(self._pull(header, address, wait_s + PULL_PATIENCE_S))

    def _start(self, coroutine: Coroutine[Any, Any, T]) -> SimTask[T]:
        return self.host.start(coroutine)

    async def _call(
        self, header: RequestHeader, body: bytes, address: str, timeout_s: float
    ) -> Response:
        assert self._peers is not None
        to = address or self._broker_address
        return await self._peers.call(to, header, body, timeout_s=timeout_s)

    async def _send(
        self, topic: str, body: bytes, queue_id: int, address: str, properties: dict[str, str]
    ) -> MessageSent:
        header = SendMessageV2(
            producer_group="sim",
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=0,
            born_timestamp=self._sim.clock(),
            flag=0,
            properties=format_properties(properties),
        )
        response = await self._call(header, body, address, CALL_S)
        if response.code != ResponseCode.SUCCESS:
            raise Refused(response)
        return response.header(MessageSent)

    async def _pull(self, header: PullMessage, address: str, timeout_s: float) -> PullResult:
        response = await self._call(header, b"", address, timeout_s)
        if response.ext_fields is None:
            raise Refused(response)
        pulled = response.header(Pulled)
        messages = decode_messages(response.body) if response.code == ResponseCode.SUCCESS else []
        return PullResult(response.code, pulled.next_begin_offset, tuple(messages))
