"""Single requests to a broker, exactly as a test wants them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sparrowmq.clock import Clock
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

CALL_S = 3.0
PULL_PATIENCE_S = 10.0
"""How much longer than the broker's wait a pull may take, as in Java's client."""


class Refused(Exception):
    """The server answered with a code other than success."""

    def __init__(self, response: Response) -> None:
        super().__init__(f"answered {response.code}: {response.remark}")
        self.code = response.code


@dataclass(frozen=True, slots=True)
class WirePull:
    """The result of a pull; `code` says why it is empty."""

    code: int
    next_offset: int
    messages: tuple[MessageExt, ...]

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


class Wire:
    """Connections for requests; every method takes the server's address."""

    def __init__(self, peers: Peers, clock: Clock, call_s: float = CALL_S) -> None:
        self._peers = peers
        self._clock = clock
        self._call_s = call_s

    def disconnect(self) -> None:
        """Close every connection."""
        for address in self._peers.known():
            self._peers.drop(address)

    async def call(
        self,
        address: str,
        header: RequestHeader,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
    ) -> Response:
        """Send any request."""
        limit_s = self._call_s if timeout_s is None else timeout_s
        return await self._peers.call(address, header, body, timeout_s=limit_s)

    async def send_oneway(self, address: str, header: RequestHeader, body: bytes = b"") -> None:
        """Send any request and expect no answer."""
        await self._peers.send_oneway(address, header, body)

    async def send(
        self, address: str, topic: str, body: bytes, *, queue_id: int = 0, **properties: str
    ) -> MessageSent:
        """Send a message. Raises `Refused`, or the connection's error."""
        header = SendMessageV2(
            producer_group="test",
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=0,
            born_timestamp=self._clock(),
            flag=0,
            properties=format_properties(properties),
        )
        response = await self.call(address, header, body)
        if response.code != ResponseCode.SUCCESS:
            raise Refused(response)
        return response.header(MessageSent)

    async def pull(
        self,
        address: str,
        topic: str,
        *,
        queue_id: int = 0,
        offset: int = 0,
        wait_s: float = 0.0,
        tags: str = "*",
        group: str = "test",
        count: int = 32,
    ) -> WirePull:
        """Pull; with `wait_s` it waits at the broker while there is nothing. Raises `Refused`."""
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
        limit_s = wait_s + max(PULL_PATIENCE_S, self._call_s)
        response = await self.call(address, header, timeout_s=limit_s)
        if response.ext_fields is None:
            raise Refused(response)
        pulled = response.header(Pulled)
        messages = decode_messages(response.body) if response.code == ResponseCode.SUCCESS else []
        return WirePull(response.code, pulled.next_begin_offset, tuple(messages))


@asynccontextmanager
async def wire(name: str, clock: Clock, call_s: float = CALL_S) -> AsyncIterator[Wire]:
    """Connections that live as long as the block. Their failures do not end the block.

    An answer may take `call_s`: a client's timeout in virtual time, more on a busy machine.
    """
    async with asyncio.TaskGroup() as tasks:
        peers = Peers(tasks, log=logging.getLogger(f"sparrowmq.testing.{name}"))
        yield Wire(peers, clock, call_s)
        await peers.close()
