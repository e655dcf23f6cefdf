"""Outgoing lines of message trace: collected, and sent in the background, a few at a time.

Producers and consumers write them (`sending/trace.py`, `consuming/trace.py`). A line that cannot be
sent is dropped, and that is logged: tracing must not use up the memory or the time of what it
traces.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.errors import BrokerRefused, ClientError, NoRoute
from sparrowmq.client.route_table import publish_queues
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.compression import CompressionType, compress
from sparrowmq.protocol.headers.send import SendMessageV2
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import AUTO_CREATE_TOPIC, TRACE_TOPIC
from sparrowmq.protocol.properties import KEYS, UNIQUE_KEY, WAIT_STORE_OK, format_properties
from sparrowmq.protocol.sys_flag import COMPRESSED

_FLUSH_S = 5.0
_FLUSH_LINES = 20
"""Once this many lines are collected, they are sent without waiting for the interval."""
_MOST_LINES = 2048
_MESSAGE_CHARS = 128_000
_KEY_CHARS = 16_000
"""Keys are properties, which end at 32,767 bytes."""
_SEND_S = 5.0
_TRIES = 2
_COMPRESS_BYTES = 4096
_QUEUES = 4
"""Queues of a trace topic that its first message creates."""
_STORED = {
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
}


class TraceLine(msgspec.Struct):
    """One line, the topic of its message, and the keys by which it is found."""

    text: str
    topic: str
    keys: str


class TraceOutbox:
    """The lines of one producer or consumer."""

    def __init__(self, client: ClientCore, group: str) -> None:
        self._client = client
        self._sent_by = f"_INNER_TRACE_PRODUCER-{group}"
        self._lines: deque[TraceLine] = deque(maxlen=_MOST_LINES)
        self._dropped = 0
        self._wake = asyncio.Event()
        self._is_stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start sending the collected lines."""
        self._task = self._client.keep(self._run, "message trace")

    async def stop(self) -> None:
        """Send what is left, unless it takes long."""
        self._is_stopping = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=_SEND_S)
            self._task.cancel()

    def add(self, text: str, topic: str, msg_id: str, keys: str | None) -> None:
        """Send a line soon; it is found by the message's id and keys."""
        if len(self._lines) == _MOST_LINES:
            self._dropped += 1
        found_by = f"{msg_id.replace(',', ' ')} {keys or ''}".strip()
        self._lines.append(TraceLine(text, topic, found_by))
        if len(self._lines) >= _FLUSH_LINES:
            self._wake.set()

    async def _run(self) -> None:
        while not self._is_stopping:
            with suppress(TimeoutError):
                async with asyncio.timeout(_FLUSH_S):
                    await self._wake.wait()
            self._wake.clear()
            await self._flush()
        await self._flush()  # what came while the last ones were sent

    async def _flush(self) -> None:
        if self._dropped:
            self._client.log.warning("%d lines of message trace lost: too many", self._dropped)
            self._dropped = 0
        lines = list(self._lines)
        self._lines.clear()
        for body, keys in _messages(lines):
            try:
                await self._send(body, keys)
            except (ClientError, NetError) as error:
                self._client.log.warning("message trace lost: %s", error)

    async def _send(self, body: bytes, keys: str) -> None:
        """Raises NoRoute, BrokerRefused, NetError."""
        sys_flag = 0
        if len(body) >= _COMPRESS_BYTES:
            body = compress(body, CompressionType.ZLIB)
            sys_flag = COMPRESSED | CompressionType.ZLIB.flag
        client = self._client
        own = {UNIQUE_KEY: client.unique_ids.next(), KEYS: keys, WAIT_STORE_OK: "true"}
        header = SendMessageV2(
            producer_group=self._sent_by,
            topic=TRACE_TOPIC,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=_QUEUES,
            queue_id=0,
            sys_flag=sys_flag,
            born_timestamp=client.clock(),
            flag=0,
            properties=format_properties(own),
        )
        queues = await self._queues()
        for left in reversed(range(_TRIES)):
            queue = client.rng.choice(queues)
            try:
                await self._send_to(queue, header, body)
                return
            except (NoRoute, NetError):
                if not left:
                    raise

    async def _queues(self) -> list[MessageQueue]:
        """Where the trace topic is, or would be created. Raises NoRoute."""
        table = self._client.route_table
        route = await table.fetch(TRACE_TOPIC)
        if route is not None and (queues := publish_queues(TRACE_TOPIC, route)):
            return queues
        route = await table.fetch(AUTO_CREATE_TOPIC)
        queues = [] if route is None else publish_queues(TRACE_TOPIC, route)
        if not queues:
            raise NoRoute(TRACE_TOPIC, "no broker has it, or creates it; see traceTopicEnable")
        return [queue for queue in queues if queue.queue_id < _QUEUES]

    async def _send_to(self, queue: MessageQueue, header: SendMessageV2, body: bytes) -> None:
        client = self._client
        address = client.route_table.master(queue.broker_name)
        if address is None:
            raise NoRoute(TRACE_TOPIC, f"broker {queue.broker_name} has no master now")
        header = msgspec.structs.replace(header, queue_id=queue.queue_id)
        response = await client.peers.call(address, header, body, timeout_s=_SEND_S)
        if response.code not in _STORED:
            raise BrokerRefused(address, response.code, response.remark)


def _messages(lines: list[TraceLine]) -> Iterator[tuple[bytes, str]]:
    """Bodies and keys: lines of one topic together, within what a message may hold."""
    for topic in dict.fromkeys(line.topic for line in lines):
        texts: list[str] = []
        keys: dict[str, None] = {}
        chars = key_chars = 0
        for line in lines:
            if line.topic != topic:
                continue
            if texts and (
                chars + len(line.text) > _MESSAGE_CHARS or key_chars + len(line.keys) > _KEY_CHARS
            ):
                yield "".join(texts).encode(), " ".join(keys)
                texts, keys, chars, key_chars = [], {}, 0, 0
            texts.append(line.text)
            keys.update(dict.fromkeys(line.keys[:_KEY_CHARS].split()))
            chars += len(line.text)
            key_chars += len(line.keys)
        yield "".join(texts).encode(), " ".join(keys)
