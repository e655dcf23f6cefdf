"""Message trace: what RocketMQ's tools can tell about a message afterwards."""

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from sparrowmq.client.client import core_of
from sparrowmq.client.sending.producer import Producer
from sparrowmq.client.sending.transactional_producer import TransactionalProducer, TransactionState
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.compression import CompressionType, decompress
from sparrowmq.protocol.headers.transactions import CheckTransactionState
from sparrowmq.protocol.message import Message, MessageQueue
from sparrowmq.protocol.properties import parse_properties
from sparrowmq.protocol.sys_flag import COMPRESSED
from sparrowmq.testing.sim_cluster import SimCluster
from sparrowmq.testing.simulation import EPOCH_MS
from tests.client.bookings import Bookings
from tests.client.scripted import World, world

TRACE = "RMQ_SYS_TRACE_TOPIC"


def traced(w: World) -> list[list[str]]:
    """The fields of every line that reached the trace topic."""
    lines = []
    for broker in w.brokers.values():
        for header, body in zip(broker.sent, broker.bodies, strict=True):
            if header.topic == TRACE:
                packed = header.sys_flag & COMPRESSED
                text = decompress(body, CompressionType.ZLIB) if packed else body
                lines += text.decode().split("\x02")[:-1]
    return [line.split("\x01") for line in lines]


def trace_keys(w: World) -> set[str]:
    found = [
        parse_properties(header.properties)["KEYS"].split()
        for broker in w.brokers.values()
        for header in broker.sent
        if header.topic == TRACE
    ]
    return {key for keys in found for key in keys}


def test_a_stored_message_leaves_a_line_in_javas_format() -> None:
    async def send(producer: Producer) -> Any:
        return await producer.send(Message("orders", b"12345", tags="created", keys="o-1"))

    with world("a") as w:
        w.routes[TRACE] = w.route(1)
        w.brokers["a"].script = [0.25]
        result = w.produce(send, trace=True)
        (line,) = traced(w)
        assert line == [
            *("Pub", str(EPOCH_MS), "DefaultRegion", "orders-svc", "orders", result.msg_id),
            *("created", "o-1", w.brokers["a"].address, "5", "250", "0", result.offset_msg_id),
            "true",
        ]
        assert trace_keys(w) == {result.msg_id, "o-1"}


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_a_trace_has_the_time_of_a_send_although_the_clock_was_set_meanwhile(step_ms: int) -> None:
    async def send(producer: Producer) -> Any:
        asyncio.get_running_loop().call_later(0.1, w.sim.set_clock, step_ms)
        return await producer.send(Message("orders", b"x"))

    with world("a") as w:
        w.routes[TRACE] = w.route(1)
        w.brokers["a"].script = [0.25]
        w.produce(send, trace=True)
        assert traced(w)[0][10] == "250"


def test_a_missing_field_is_traced_as_the_word_null_as_in_java() -> None:
    async def send(producer: Producer) -> Any:
        return await producer.send(Message("orders", b"x"))

    with world("a") as w:
        w.routes[TRACE] = w.route(1)
        w.produce(send, trace=True)
        assert traced(w)[0][6:8] == ["null", "null"]


@pytest.mark.parametrize(
    ("message", "kind"), [({}, "0"), ({"delay_level": 3}, "3"), ({"delay_ms": 10}, "3")]
)
def test_a_trace_line_distinguishes_delayed_messages_from_plain_ones(
    message: Any, kind: str
) -> None:
    async def send(producer: Producer) -> Any:
        return await producer.send(Message("orders", b"x", **message))

    with world("a") as w:
        w.routes[TRACE] = w.route(1)
        w.produce(send, trace=True)
        assert traced(w)[0][11] == kind


def test_a_message_that_is_stored_less_safely_is_traced_as_no_success() -> None:
    async def send(producer: Producer) -> Any:
        return await producer.send(Message("orders", b"x"))

    with world("a") as w:
        w.routes[TRACE] = w.route(1)
        w.brokers["a"].script = [ResponseCode.FLUSH_DISK_TIMEOUT]
        w.produce(send, trace=True)
        assert traced(w)[0][13] == "false"


@pytest.mark.parametrize(("wanted", "regions"), [("true", ["eu-1"]), ("false", [])])
def test_a_broker_reports_its_region_and_whether_tracing_is_on(
    wanted: str, regions: list[str]
) -> None:
    async def send(producer: Producer) -> None:
        await producer.send(Message("orders", b"x"))

    with world("a") as w:
        w.routes[TRACE] = w.route(1)
        w.brokers["a"].trace = ("eu-1", wanted)
        w.produce(send, trace=True)
        assert [line[2] for line in traced(w)] == regions


def test_lines_wait_for_twenty_of_them_or_for_five_seconds() -> None:
    async def send(producer: Producer) -> None:
        for _ in range(19):
            await producer.send(Message("orders", b"x"))
        await asyncio.sleep(1)
        assert traced(w) == []
        await producer.send(Message("orders", b"x"))
        await asyncio.sleep(0.1)
        assert len(traced(w)) == 20
        await producer.send(Message("orders", b"x"))
        await asyncio.sleep(4.5)
        assert len(traced(w)) == 20
        await asyncio.sleep(1)
        assert len(traced(w)) == 21

    with world("a") as w:
        w.routes[TRACE] = w.route(1)
        w.produce(send, trace=True)


def test_a_producer_traces_nothing_by_default() -> None:
    async def send(producer: Producer) -> None:
        for _ in range(30):
            await producer.send(Message("orders", b"x"))

    with world("a") as w:
        w.routes[TRACE] = w.route(1)
        w.produce(send)
        assert traced(w) == []


def test_sends_succeed_without_a_trace_topic() -> None:
    async def send(producer: Producer) -> None:
        for _ in range(30):
            assert (await producer.send(Message("orders", b"x"))).is_ok

    with world("a") as w:
        w.produce(send, trace=True)
        assert traced(w) == []


def test_the_trace_goes_to_another_broker_when_one_drains(caplog: pytest.LogCaptureFixture) -> None:
    async def send(producer: Producer) -> None:
        for _ in range(60):
            await producer.send(
                Message("orders", b"x"), queue=MessageQueue("orders", "broker-b", 0)
            )
            await asyncio.sleep(1)

    with world("ab") as w:
        w.routes[TRACE] = w.route(1)
        w.brokers["a"].script = [ResponseCode.NO_PERMISSION] * 60
        w.produce(send, trace=True)
        stored = w.brokers["b"]
        assert sum(header.topic == "orders" for header in stored.sent) == 60
        taken = [
            body
            for header, body in zip(stored.sent, stored.bodies, strict=True)
            if header.topic == TRACE
        ]
        assert sum(body.count(b"\x02") for body in taken) == 60
        assert "message trace" not in caplog.text


def test_a_broker_that_drains_is_asked_once_and_then_left_out_of_the_trace() -> None:
    async def send(producer: Producer) -> None:
        for step in range(60):
            await producer.send(
                Message("orders", b"x"), queue=MessageQueue("orders", "broker-b", 0)
            )
            await asyncio.sleep(1)
            if step == 20:  # broker-a drains: name servers hide it from producers
                hidden = msgspec.structs.replace(w.routes[TRACE].queue_datas[0], perm=4)
                rest = w.routes[TRACE].queue_datas[1:]
                w.routes[TRACE] = msgspec.structs.replace(
                    w.routes[TRACE], queue_datas=(hidden, *rest)
                )
                refused.append(len(w.brokers["a"].sent))
                w.brokers["a"].script = [ResponseCode.NO_PERMISSION] * 60

    refused: list[int] = []
    with world("ab") as w:
        w.routes[TRACE] = w.route(1)
        w.produce(send, trace=True)
        assert len(w.brokers["a"].sent) == refused[0] + 1


def test_a_lost_trace_is_logged_at_its_beginning_once_a_minute_and_at_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def send(producer: Producer) -> None:
        for _ in range(100):
            await producer.send(Message("orders", b"x"))
            await asyncio.sleep(1)
        w.routes[TRACE] = w.route(1)
        await producer.send(Message("orders", b"x"))
        await asyncio.sleep(10)

    caplog.set_level(logging.INFO, logger="sparrowmq.client")
    with world("a") as w:
        w.produce(send, trace=True)
    said = [r.getMessage() for r in caplog.records if "message trace" in r.getMessage()]
    begins, lasts, ends = said
    assert begins.startswith("message trace is being lost; messages themselves are not affected: ")
    assert lasts.startswith("message trace has been lost for 60 s now, 65 lines: ")
    assert ends == "message trace is stored again after 95 s; 95 lines were lost"


def test_the_log_names_the_broker_and_its_code_when_every_broker_refuses_the_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def send(producer: Producer) -> None:
        await producer.send(Message("orders", b"x"))
        w.brokers["a"].script = [ResponseCode.NO_PERMISSION] * 60
        await asyncio.sleep(10)

    with world("a") as w:
        w.routes[TRACE] = w.route(1)
        w.produce(send, trace=True)
    (said,) = [r.getMessage() for r in caplog.records if "message trace" in r.getMessage()]
    assert said.endswith(": broker broker-a refused with NO_PERMISSION")


def test_a_large_batch_is_traced_with_keys_that_fit_a_message() -> None:
    async def send(producer: Producer) -> None:
        await producer.send_batch([Message("orders", b"x") for _ in range(2000)])

    with world("a") as w:
        w.routes[TRACE] = w.route(1)
        w.produce(send, trace=True)
        (line,) = traced(w)
        assert len(line[5].split(",")) == 2000


def test_the_end_of_a_transaction_is_traced_after_its_half_message() -> None:
    async def run() -> Any:
        client = w.client()
        await client.start()
        settings: Any = {"client": client, "threads": InlineWorkers(), "trace": True}
        async with TransactionalProducer("orders-svc", Bookings(), **settings) as producer:
            result = await producer.send_in_transaction(Message("orders", b"x", keys="o-1"))
        await client.stop()
        return result

    with world("a") as w:
        w.routes[TRACE] = w.route(1)
        result = w.sim.run(run(), on=w.sim.host("producer"))
        half, end = traced(w)
        assert half[11] == "1"
        assert end == [
            *("EndTransaction", str(EPOCH_MS), "DefaultRegion", "orders-svc", "orders"),
            *(result.msg_id, "null", "o-1", w.brokers["a"].address, "2", result.msg_id),
            *("COMMIT_MESSAGE", "false"),
        ]


def test_the_answer_to_a_broker_that_asks_is_traced_as_one() -> None:
    question = CheckTransactionState(tran_state_table_offset=7, commit_log_offset=1234)

    async def run() -> Any:
        client = w.client()
        await client.start()
        settings: Any = {"client": client, "threads": InlineWorkers(), "trace": True}
        listener = Bookings(checked=TransactionState.ROLLBACK)
        async with TransactionalProducer("orders-svc", listener, **settings):
            await core_of(client).producers["orders-svc"].check_transaction(half, question)
        await client.stop()

    with SimCluster(seed=1).run() as sim:
        sim.wait(sim.client.send("orders", b"x", UNIQ_KEY="id-1"))
        (half,) = sim.wait(sim.client.pull("orders", queue_id=0, offset=0, wait_s=0)).messages
    with world("a") as w:
        w.routes[TRACE] = w.route(1)
        w.sim.run(run(), on=w.sim.host("producer"))
        (line,) = traced(w)
        assert (line[0], line[5], line[-2:]) == (
            *("EndTransaction", half.msg_id),
            ["ROLLBACK_MESSAGE", "true"],
        )
