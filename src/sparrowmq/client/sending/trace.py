"""Message trace of a producer: lines are collected and sent in the background, a few at a time."""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.errors import ClientError
from sparrowmq.client.send_result import SendResult
from sparrowmq.client.sending.attempts import RetryRules, SendAttempts
from sparrowmq.client.sending.packing import Outgoing, Packing, pack
from sparrowmq.client.sending.queue_choice import SendQueues
from sparrowmq.protocol.compression import CompressionType
from sparrowmq.protocol.message import MAX_BODY_BYTES, Message
from sparrowmq.protocol.names import TRACE_TOPIC
from sparrowmq.protocol.properties import (
    DELAY_LEVEL,
    KEYS,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
    find_property,
)
from sparrowmq.protocol.sys_flag import TRANSACTION_PREPARED
from sparrowmq.protocol.trace import (
    DEFAULT_REGION,
    TracedKind,
    TracedMessage,
    format_ended,
    format_sent,
)

_FLUSH_S = 5.0
_FLUSH_LINES = 20
"""So many lines are sent at once without waiting for the time."""
_MOST_LINES = 2048
"""More are dropped: trace must not take the memory of what it watches."""
_MESSAGE_CHARS = 128_000
_KEY_CHARS = 16_000
"""Keys are properties, which end at 32,767 bytes."""
_SEND_S = 5.0


class _Line(msgspec.Struct):
    text: str
    topic: str
    keys: str


class TraceLog:
    """The trace of one producer. A line that cannot be sent is dropped, and that is logged."""

    def __init__(self, client: ClientCore, group: str, queues: SendQueues) -> None:
        self._client = client
        self._group = group
        self._lines: deque[_Line] = deque(maxlen=_MOST_LINES)
        self._dropped = 0
        self._wake = asyncio.Event()
        self._is_stopping = False
        self._task: asyncio.Task[None] | None = None
        self._attempts = SendAttempts(
            client, queues, RetryRules(retries=1, unless_ok=False), faults=None
        )
        self._packing = Packing(
            group=f"_INNER_TRACE_PRODUCER-{group}",
            max_body_bytes=MAX_BODY_BYTES,
            compress_from_bytes=4096,
            compression=CompressionType.ZLIB,
            default_queues=4,
        )

    async def start(self) -> None:
        """Begin to send what is collected."""
        self._task = self._client.keep(self._run, "message trace")

    async def stop(self) -> None:
        """Send what is left, if it does not take long."""
        self._is_stopping = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=_SEND_S)
            self._task.cancel()

    def sent(
        self, out: Outgoing, address: str, cost_ms: int, result: SendResult, region: str
    ) -> None:
        """A broker has stored a message."""
        message = self._message(out, address, self._client.clock() - cost_ms, region)
        text = format_sent(
            message,
            kind=_kind(out),
            body_bytes=len(out.body),
            cost_ms=cost_ms,
            offset_msg_id=result.offset_msg_id,
            is_ok=result.is_ok,
        )
        self._add(message, text)

    def ended(self, message: TracedMessage, state: str, *, is_answer: bool) -> None:
        """A transaction ended."""
        text = format_ended(
            message, state=state, transaction_id=message.msg_id, is_answer=is_answer
        )
        self._add(message, text)

    def _message(self, out: Outgoing, address: str, time_ms: int, region: str) -> TracedMessage:
        header = out.header
        return TracedMessage(
            time_ms=time_ms,
            region=region or DEFAULT_REGION,
            group=self._group,
            topic=header.topic,
            msg_id=out.msg_id,
            tags=find_property(header.properties, TAGS),
            keys=find_property(header.properties, KEYS),
            store_host=address,
        )

    def _add(self, message: TracedMessage, text: str) -> None:
        keys = f"{message.msg_id.replace(',', ' ')} {message.keys or ''}".strip()
        if len(self._lines) == _MOST_LINES:
            self._dropped += 1
        self._lines.append(_Line(text, message.topic, keys))
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
        for message in _messages(lines):
            client = self._client
            out = pack(message, self._packing, client.unique_ids, client.clock())
            try:
                await self._attempts.send(TRACE_TOPIC, out, _SEND_S)
            except ClientError as error:
                client.log.warning("message trace lost: %s", error)


def _messages(lines: list[_Line]) -> Iterator[Message]:
    """Lines of one topic together, within what a message may hold."""
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
                yield _message_of(texts, keys)
                texts, keys, chars, key_chars = [], {}, 0, 0
            texts.append(line.text)
            keys.update(dict.fromkeys(line.keys[:_KEY_CHARS].split()))
            chars += len(line.text)
            key_chars += len(line.keys)
        yield _message_of(texts, keys)


def _message_of(texts: list[str], keys: dict[str, None]) -> Message:
    return Message(TRACE_TOPIC, "".join(texts).encode(), keys=tuple(keys))


def _kind(out: Outgoing) -> TracedKind:
    header = out.header
    if any(
        find_property(header.properties, name)
        for name in (DELAY_LEVEL, TIMER_DELAY_MS, TIMER_DELIVER_MS)
    ):
        return TracedKind.DELAYED
    return TracedKind.HALF if header.sys_flag & TRANSACTION_PREPARED else TracedKind.NORMAL
