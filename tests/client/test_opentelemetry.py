"""Spans of sends and handlers, and their context on its way through the message."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode

from sparrowmq import (
    Client,
    ConsumeFromWhere,
    Message,
    MessageExt,
    OpenTelemetryHooks,
    Producer,
    PushConsumer,
    RetryLater,
)
from sparrowmq.testing.sim_cluster import SimCluster


class Traced:
    """What became of messages that a traced producer sends to a traced consumer."""

    def __init__(self, *messages: Message, batch: int = 1, error: Exception | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.hooks = OpenTelemetryHooks(provider)
        self.tracer = provider.get_tracer("tests")
        self.got: list[MessageExt] = []
        self._error = error
        with SimCluster(seed=1).run() as sim:
            client = sim.client_on("client")
            sim.run(self._work(client, messages, batch), on=sim.host("client"))

    async def _work(self, client: Client, messages: Sequence[Message], batch: int) -> None:
        await client.start()
        done = asyncio.Event()

        async def handle(got: Sequence[MessageExt]) -> None:
            with self.tracer.start_as_current_span("inside the handler"):
                self.got += got
            if len(self.got) == len(messages):
                done.set()
            if self._error is not None:
                raise self._error

        async with Producer("orders-svc", client=client, hooks=[self.hooks]) as producer:
            if batch > 1:
                await producer.send_batch(messages)
            else:
                for message in messages:
                    await producer.send(message)
        async with PushConsumer(
            "billing",
            {"orders": "*"},
            client=client,
            hooks=[self.hooks],
            batch=batch,
            from_where=ConsumeFromWhere.FIRST_OFFSET,
        ) as consumer:
            await consumer.start(handle)
            await done.wait()
        await client.stop()

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def ids(context: SpanContext | None) -> tuple[int, int]:
    """Of the trace and the span; a context that came with a message differs in being remote."""
    assert context is not None
    return context.trace_id, context.span_id


def test_one_trace_goes_from_the_send_through_the_message_to_the_handler() -> None:
    traced = Traced(Message("orders", b"12345", tags="created", keys="o-1"))
    (send,), (receive,) = traced.spans("send orders"), traced.spans("receive orders")
    (process,), (inside,) = traced.spans("process orders"), traced.spans("inside the handler")
    assert ids(process.parent) == ids(send.context) == ids(receive.links[0].context)
    assert ids(inside.parent) == ids(process.context)
    assert ids(process.links[0].context) == ids(receive.context)
    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    version, id_in_message, *_ = traced.got[0].properties["traceparent"].split("-")
    assert (version, int(id_in_message, 16)) == ("00", ids(send.context)[0])


def test_spans_follow_opentelemetrys_conventions() -> None:
    traced = Traced(Message("orders", b"12345", tags="created", keys="o-1"))
    common = {
        "messaging.system": "rocketmq",
        "messaging.destination.name": "orders",
        "messaging.message.id": traced.got[0].msg_id,
        "messaging.message.body.size": 5,
        "messaging.rocketmq.message.tag": "created",
        "messaging.rocketmq.message.keys": ("o-1",),
    }
    for name, group in (("send", "orders-svc"), ("process", "billing")):
        (span,) = traced.spans(f"{name} orders")
        found = attributes(span)
        assert common.items() <= found.items()
        assert found["messaging.operation.type"] == name
        assert found["messaging.rocketmq.client_group"] == group


def test_a_batch_is_one_process_span_with_a_link_to_every_send() -> None:
    traced = Traced(*(Message("orders", b"%d" % n) for n in range(3)), batch=3)
    (send,), (receive,) = traced.spans("send orders"), traced.spans("receive orders")
    (process,) = traced.spans("process orders")
    assert attributes(send)["messaging.batch.message_count"] == 3
    assert ids(process.parent) == ids(receive.context)
    assert [ids(link.context) for link in process.links] == [ids(send.context)] * 3


@pytest.mark.parametrize("error", [RuntimeError("broken"), RetryLater("not yet")])
def test_a_failed_handler_ends_its_span_with_the_error(error: Exception) -> None:
    traced = Traced(Message("orders", b"x"), error=error)
    process = traced.spans("process orders")[0]
    assert process.status.status_code is StatusCode.ERROR
    assert attributes(process)["error.type"] == type(error).__name__
    assert process.events[0].name == "exception"


def test_the_current_span_is_the_parent_of_a_send_and_is_current_again_afterwards() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("tests")

    async def work(client: Client) -> None:
        await client.start()
        hooks = [OpenTelemetryHooks(provider)]
        async with Producer("orders-svc", client=client, hooks=hooks) as producer:
            with tracer.start_as_current_span("request") as request:
                await producer.send(Message("orders", b"x"))
                assert trace.get_current_span() is request
        await client.stop()

    with SimCluster(seed=1).run() as sim:
        sim.run(work(sim.client_on("client")), on=sim.host("client"))
    send, request = exporter.get_finished_spans()
    assert ids(send.parent) == ids(request.context)


def test_without_opentelemetry_the_error_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ImportError, match=r"pip install 'sparrowmq\[otel\]'"):
        OpenTelemetryHooks()
