"""Outgoing lines of message trace: collected, and sent in the background, a few at a time.

Producers and consumers write them (`sending/trace.py`, `consuming/trace.py`). A line that no broker
takes is dropped: tracing must not use up the memory or the time of what it traces. That is logged
when it begins, once a minute while it lasts, and at its end.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import suppress

import msgspec

from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.errors import RETRIED, BrokerRefused, ClientError, NoRoute, counted
from sparrowmq.client.route_table import publish_queues
from sparrowmq.episodes import Episode
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
_TRIES = 3
"""The first, one on another broker, and one more: tracing is not worth a long search."""
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
        self._loss: Episode | None = None
        """While no broker takes the lines."""
        self._lost_lines = 0
        """In the current loss."""
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
            self._note_loss(self._dropped, "too many were waiting")
            self._dropped = 0
        lines = list(self._lines)
        self._lines.clear()
        for body, keys, count in _messages(lines):
            try:
                await self._send(body, keys)
            except (ClientError, NetError) as error:
                self._client.log.debug("message trace not sent: %s", error)
                self._note_loss(count, self._reason(error))
            else:
                self._note_sent()

    def _reason(self, error: Exception) -> str:
        """What the application's log says. A broker's own words are for who sends messages or
        operates the broker; the program that is traced need do neither."""
        if not isinstance(error, BrokerRefused):
            return str(error)
        code = ResponseCode(error.code).name if error.is_known else f"code {error.code}"
        return f"{self._client.route_table.label(error.address)} refused with {code}"

    def _note_loss(self, lines: int, reason: str) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._loss is None:
            self._loss, self._lost_lines = Episode(now_s), 0
        self._lost_lines += lines
        if not self._loss.occurs(now_s):
            return
        if self._loss.is_new:
            text = "message trace is being lost; messages themselves are not affected: %s"
            self._client.log.warning(text, reason)
            return
        self._client.log.warning(
            "message trace has been lost for %.0f s now, %s: %s",
            self._loss.lasted_s(now_s),
            counted(self._lost_lines, "line"),
            reason,
        )

    def _note_sent(self) -> None:
        if self._loss is None:
            return
        lasted_s = self._loss.lasted_s(asyncio.get_running_loop().time())
        text = "message trace is stored again after %.0f s; %s lost"
        lost = counted(self._lost_lines, "line") + (" was" if self._lost_lines == 1 else " were")
        self._client.log.info(text, lasted_s, lost)
        self._loss = None

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
        failed: set[str] = set()
        for left in reversed(range(_TRIES)):
            queue = client.rng.choice(_elsewhere(await self._queues(), failed))
            try:
                await self._send_to(queue, header, body)
                return
            except (NoRoute, NetError, BrokerRefused) as error:
                if not left or (isinstance(error, BrokerRefused) and error.code not in RETRIED):
                    raise
                failed.add(queue.broker_name)
                await self._look_again()

    async def _queues(self) -> list[MessageQueue]:
        """Where the trace topic is, or would be created. Raises NoRoute."""
        table = self._client.route_table
        route = await table.fetch(TRACE_TOPIC)
        if route is not None and (queues := publish_queues(TRACE_TOPIC, route)):
            return queues
        route = await table.fetch(AUTO_CREATE_TOPIC)
        queues = [] if route is None else publish_queues(TRACE_TOPIC, route)
        if not queues:
            raise NoRoute(
                TRACE_TOPIC, "no broker has the trace topic or may create it; see traceTopicEnable"
            )
        return [queue for queue in queues if queue.queue_id < _QUEUES]

    async def _look_again(self) -> None:
        """Ask name servers where the topic is now: no poll keeps its route fresh, and a broker that
        drains, or has left, would be tried again with every message."""
        table = self._client.route_table
        with suppress(NoRoute):  # no name server answers; the known routes stay in use
            if await table.refresh(TRACE_TOPIC) is None:
                await table.refresh(AUTO_CREATE_TOPIC)

    async def _send_to(self, queue: MessageQueue, header: SendMessageV2, body: bytes) -> None:
        client = self._client
        address = client.route_table.master(queue.broker_name)
        if address is None:
            raise NoRoute(TRACE_TOPIC, f"broker {queue.broker_name} has no master now")
        header = msgspec.structs.replace(header, queue_id=queue.queue_id)
        response = await client.peers.call(address, header, body, timeout_s=_SEND_S)
        if response.code not in _STORED:
            raise BrokerRefused(address, response.code, response.remark)


def _elsewhere(queues: list[MessageQueue], failed: Collection[str]) -> list[MessageQueue]:
    """Queues on brokers that have not failed; all of them if every broker has."""
    return [queue for queue in queues if queue.broker_name not in failed] or queues


def _messages(lines: list[TraceLine]) -> Iterator[tuple[bytes, str, int]]:
    """Body, keys and number of lines: lines of one topic together, within what a message may
    hold."""
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
                yield "".join(texts).encode(), " ".join(keys), len(texts)
                texts, keys, chars, key_chars = [], {}, 0, 0
            texts.append(line.text)
            keys.update(dict.fromkeys(line.keys[:_KEY_CHARS].split()))
            chars += len(line.text)
            key_chars += len(line.keys)
        yield "".join(texts).encode(), " ".join(keys), len(texts)
