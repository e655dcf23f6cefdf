"""Spans of OpenTelemetry for sends and handlers; needs `sparrowmq[otel]`.

```
sender     send orders ──────┐ traceparent in the message's properties
                             ▼
consumer   receive orders ─ link         one for each call of the handler
           process orders ─ child of the send; of the receive with several messages
```

The context travels in the properties that the configured propagator writes, by default
`traceparent` and `tracestate`. OpenTelemetry's instrumentation of Java's client does the same, so
traces cross languages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sparrowmq.client.hooks import Handling, Hooks, Sending
from sparrowmq.protocol.message import Message
from sparrowmq.protocol.message_ext import MessageExt

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, Tracer, TracerProvider

_SPAN = "sparrowmq.otel.span"
_TOKEN = "sparrowmq.otel.token"
_NEEDED = "OpenTelemetryHooks needs OpenTelemetry's interface: pip install 'sparrowmq[otel]'"


class OpenTelemetryHooks(Hooks):
    """Pass it to producers and consumers: `Producer("orders-svc", hooks=[OpenTelemetryHooks()])`.

    Spans go to `tracer_provider`, by default the global one. Async handlers run inside their span;
    plain ones run in threads, where `trace.get_current_span()` finds none.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        """Raises ImportError if OpenTelemetry is not installed."""
        try:
            from opentelemetry import context, propagate, trace
        except ImportError as error:
            raise ImportError(_NEEDED) from error
        self._trace: Any = trace
        self._propagate: Any = propagate
        self._context: Any = context
        self._tracer: Tracer = trace.get_tracer("sparrowmq", tracer_provider=tracer_provider)

    # ---- sending

    def before_send(self, sending: Sending) -> None:
        """Start the span, and add its context to the message."""
        span = self._tracer.start_span(
            f"send {_destination(sending.messages)}",
            kind=self._trace.SpanKind.PRODUCER,
            attributes=_attributes("send", sending.messages, producer_group=sending.group),
        )
        sending.state[_SPAN] = span
        inside = self._trace.set_span_in_context(span)
        self._propagate.inject(sending.properties, context=inside)

    def after_send(self, sending: Sending) -> None:
        """End it."""
        span: Span | None = sending.state.get(_SPAN)
        if span is None:
            return
        if len(sending.results) == 1 and len(sending.messages) == 1:
            span.set_attribute("messaging.message.id", sending.results[0].msg_id)
        if sending.results and sending.results[0].diverted_from:
            span.set_attribute("messaging.destination.name", sending.results[0].queue.topic)
        self._end(span, sending.error)

    # ---- handling

    def before_handling(self, handling: Handling) -> None:
        """Start the handler's span, and make it the current one."""
        messages = handling.messages
        sent = [self._propagate.extract(message.properties) for message in messages]
        links = self._links(sent)
        attributes = _attributes("receive", messages, consumer_group=handling.group)
        receive = self._tracer.start_span(
            f"receive {_destination(messages)}",
            context=self._context.Context(),
            kind=self._trace.SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
        )
        receive.end()
        is_alone = len(messages) == 1 and links
        span = self._tracer.start_span(
            f"process {_destination(messages)}",
            context=sent[0] if is_alone else self._trace.set_span_in_context(receive),
            kind=self._trace.SpanKind.CONSUMER,
            attributes=_attributes("process", messages, consumer_group=handling.group),
            links=[self._trace.Link(receive.get_span_context())] if is_alone else links,
        )
        handling.state[_SPAN] = span
        handling.state[_TOKEN] = self._context.attach(self._trace.set_span_in_context(span))

    def after_handling(self, handling: Handling) -> None:
        """End it."""
        token = handling.state.get(_TOKEN)
        if token is not None:
            self._context.detach(token)
        span: Span | None = handling.state.get(_SPAN)
        if span is not None:
            if handling.failed:
                span.set_attribute("messaging.batch.failed_count", len(handling.failed))
            self._end(span, handling.error)

    def _links(self, contexts: Sequence[Context]) -> list[Link]:
        found = (self._trace.get_current_span(each).get_span_context() for each in contexts)
        return [self._trace.Link(each) for each in found if each.is_valid]

    def _end(self, span: Span, error: BaseException | None) -> None:
        if error is not None:
            span.set_attribute("error.type", type(error).__qualname__)
            span.record_exception(error)
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, str(error)))
        span.end()


def _destination(messages: Sequence[Message | MessageExt]) -> str:
    return _topic(messages[0]) if messages else ""


def _topic(message: Message | MessageExt) -> str:
    """The message's own topic: one that failed comes back through a topic of its group."""
    return message.original_topic if isinstance(message, MessageExt) else message.topic


def _attributes(
    operation: str,
    messages: Sequence[Message | MessageExt],
    *,
    producer_group: str = "",
    consumer_group: str = "",
) -> dict[str, Any]:
    """By OpenTelemetry's conventions for RocketMQ."""
    found: dict[str, Any] = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": _destination(messages),
        "messaging.rocketmq.client_group": producer_group or consumer_group,
    }
    if consumer_group:
        found["messaging.consumer.group.name"] = consumer_group
    if len(messages) != 1:
        return found | {"messaging.batch.message_count": len(messages)}
    (message,) = messages
    found["messaging.message.body.size"] = len(message.body)
    if message.tags:
        found["messaging.rocketmq.message.tag"] = message.tags
    if message.keys:
        found["messaging.rocketmq.message.keys"] = list(message.keys)
    if isinstance(message, MessageExt):
        found["messaging.message.id"] = message.msg_id
    return found
