"""Message trace of a producer: what it sent, how its transactions ended, what it recalled."""

from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.send_result import SendResult
from sparrowmq.client.sending.packing import Outgoing
from sparrowmq.client.trace_outbox import TraceOutbox
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
    format_recalled,
    format_sent,
)


class TraceLog:
    """The trace of one producer."""

    def __init__(self, client: ClientCore, group: str) -> None:
        self._client = client
        self._group = group
        self._outbox = TraceOutbox(client, group)

    async def start(self) -> None:
        """Start sending the collected trace."""
        self._outbox.start()

    async def stop(self) -> None:
        """Send what is left, unless it takes long."""
        await self._outbox.stop()

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

    def recalled(self, topic: str, msg_id: str, *, is_ok: bool) -> None:
        """A message was recalled before its delivery, or the recall failed."""
        text = format_recalled(
            time_ms=self._client.clock(),
            group=self._group,
            topic=topic,
            msg_id=msg_id,
            is_ok=is_ok,
        )
        self._outbox.add(text, topic, msg_id, None)

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
        self._outbox.add(text, message.topic, message.msg_id, message.keys)


def _kind(out: Outgoing) -> TracedKind:
    header = out.header
    if any(
        find_property(header.properties, name)
        for name in (DELAY_LEVEL, TIMER_DELAY_MS, TIMER_DELIVER_MS)
    ):
        return TracedKind.DELAYED
    return TracedKind.HALF if header.sys_flag & TRANSACTION_PREPARED else TracedKind.NORMAL
