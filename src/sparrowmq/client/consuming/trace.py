"""Message trace of a consumer: what its handler got, and the outcome.

A request id links the lines before and after a handler call. Messages whose broker switched tracing
off are left out.
"""

from collections.abc import Iterator

from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.consuming.handler_calls import RetryLater
from sparrowmq.client.hooks import Handling, Hooks
from sparrowmq.client.trace_outbox import TraceOutbox
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.properties import KEY_SEPARATOR, MSG_REGION, TRACE_SWITCH
from sparrowmq.protocol.trace import DEFAULT_REGION, TraceOutcome, format_after, format_before

_REQUEST_ID = "sparrowmq.client.consuming.trace"


class ConsumerTrace(Hooks):
    """The trace of one consumer, as hooks: a consumer without a trace runs none of this."""

    def __init__(self, client: ClientCore, group: str, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self.outbox = TraceOutbox(client, group)

    def before_handling(self, handling: Handling) -> None:
        """Write a line for each message."""
        request_id = handling.state[_REQUEST_ID] = self._client.unique_ids.next()
        for message in _traced(handling):
            text = format_before(
                time_ms=self._client.clock(),
                region=message.properties.get(MSG_REGION, DEFAULT_REGION),
                group=handling.group,
                request_id=request_id,
                msg_id=message.msg_id,
                attempts=message.reconsume_times,
                keys=_keys(message),
            )
            self._add(message, text)

    def after_handling(self, handling: Handling) -> None:
        """Write a line for each message, with its share of the time."""
        request_id = handling.state.get(_REQUEST_ID, "")
        cost_ms = round(handling.elapsed_s * 1000 / len(handling.messages))
        failed = {id(message) for message in handling.failed}
        for message in _traced(handling):
            text = format_after(
                time_ms=self._client.clock(),
                group=handling.group,
                request_id=request_id,
                msg_id=message.msg_id,
                cost_ms=cost_ms,
                outcome=self._outcome(handling, has_failed=id(message) in failed),
                keys=_keys(message),
            )
            self._add(message, text)

    def _outcome(self, handling: Handling, *, has_failed: bool) -> TraceOutcome:
        if handling.elapsed_s >= self._timeout_s:
            return TraceOutcome.TIMEOUT
        if not has_failed:
            return TraceOutcome.SUCCESS
        return (
            TraceOutcome.FAILED
            if isinstance(handling.error, RetryLater)
            else TraceOutcome.EXCEPTION
        )

    def _add(self, message: MessageExt, text: str) -> None:
        self.outbox.add(text, message.original_topic, message.msg_id, _keys(message))


def _traced(handling: Handling) -> Iterator[MessageExt]:
    for message in handling.messages:
        if message.properties.get(TRACE_SWITCH) != "false":
            yield message


def _keys(message: MessageExt) -> str:
    return KEY_SEPARATOR.join(message.keys)
