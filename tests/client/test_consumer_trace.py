"""The consumer's half of the message trace: what its handler got, and what became of it."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from sparrowmq.client.consuming.handler_calls import RetryLater
from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.client.sending.producer import Producer
from sparrowmq.protocol.compression import CompressionType, decompress
from sparrowmq.protocol.heartbeat import ConsumeFromWhere
from sparrowmq.protocol.message import Message
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.record import decode_record
from sparrowmq.protocol.sys_flag import COMPRESSED
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster

TRACE = "RMQ_SYS_TRACE_TOPIC"


def traced(sim: RunningCluster) -> tuple[list[list[str]], set[str]]:
    """The fields of every line in the trace topic, and the keys of its messages."""
    store = sim.broker.store
    lines, keys = [], set()
    for topic, queue_id in store.queues():
        if topic != TRACE:
            continue
        for log_offset, _, _ in store.units(topic, queue_id, 0, 1000):
            data = store.read_message(log_offset)
            assert data is not None
            record = decode_record(data)
            body = record.body
            if record.sys_flag & COMPRESSED:
                body = decompress(body, CompressionType.ZLIB)
            lines += [line.split("\x01") for line in body.decode().split("\x02")[:-1]]
            properties = record.properties.decode().split("\x02")
            keys |= {
                key for each in properties if each[:5] == "KEYS\x01" for key in each[5:].split()
            }
    return lines, keys


def consume(
    handle: Callable[[Sequence[MessageExt]], None],
    *messages: Message,
    trace: bool = True,
    batch: int = 1,
    is_traced_by_producer: bool = False,
) -> tuple[list[str], list[list[str]], set[str]]:
    """Ids of the messages sent, and their trace lines."""
    with SimCluster(seed=1).run() as sim:
        client = sim.client_on("client")

        async def work() -> list[str]:
            await client.start()
            async with Producer(
                "orders-svc", client=client, trace=is_traced_by_producer
            ) as producer:
                ids = [(await producer.send(message)).msg_id for message in messages]
            left = set(ids)
            done = asyncio.Event()

            async def call(batch: Sequence[MessageExt]) -> None:
                left.difference_update(message.msg_id for message in batch)
                if not left:
                    done.set()
                handle(batch)

            async with PushConsumer(
                "billing",
                {"orders": "*"},
                client=client,
                trace=trace,
                batch=batch,
                from_where=ConsumeFromWhere.FIRST_OFFSET,
            ) as consumer:
                await consumer.start(call)
                await done.wait()
            await client.stop()
            return ids

        ids = sim.run(work(), on=sim.host("client"))
        return ids, *traced(sim)


def test_a_consumed_message_leaves_a_line_before_and_one_after() -> None:
    (msg_id,), lines, keys = consume(
        lambda batch: None, Message("orders", b"x", keys=["o-1", "o-2"])
    )
    before, after = lines
    request_id = before[4]
    assert before[0] == "SubBefore"
    assert before[2:] == ["DefaultRegion", "billing", request_id, msg_id, "0", "o-1 o-2"]
    assert after[:7] == ["SubAfter", request_id, msg_id, "0", "true", "o-1 o-2", "0"]
    assert after[8] == "billing"
    assert keys == {msg_id, "o-1", "o-2"}


@pytest.mark.parametrize(
    ("error", "code"), [(RuntimeError("broken"), "2"), (RetryLater("not yet"), "4")]
)
def test_a_failed_message_is_traced_with_the_kind_of_failure(error: Exception, code: str) -> None:
    def handle(batch: Sequence[MessageExt]) -> None:
        raise error

    _, lines, _ = consume(handle, Message("orders", b"x"))
    after = next(line for line in lines if line[0] == "SubAfter")
    assert (after[4], after[5], after[6]) == ("false", "null", code)


def test_in_a_batch_only_messages_that_are_retried_count_as_failed() -> None:
    def handle(batch: Sequence[MessageExt]) -> None:
        if len(batch) > 1:
            raise RetryLater(done=1)

    ids, lines, _ = consume(handle, *(Message("orders", b"%d" % n) for n in range(8)), batch=8)
    requests = {line[4] for line in lines if line[0] == "SubBefore"}
    outcomes = {line[2]: line[4] for line in lines if line[0] == "SubAfter"}
    assert outcomes.keys() == set(ids)
    assert len(requests) == len({line[1] for line in lines if line[0] == "SubAfter"})


def test_both_halves_are_found_by_the_same_id() -> None:
    (msg_id,), lines, keys = consume(
        lambda batch: None, Message("orders", b"x"), is_traced_by_producer=True
    )
    places = {"Pub": 5, "SubBefore": 5, "SubAfter": 2}
    assert {line[0]: line[places[line[0]]] for line in lines} == dict.fromkeys(places, msg_id)
    assert keys == {msg_id}


def test_messages_with_trace_switched_off_are_not_traced() -> None:
    def handle(batch: Sequence[MessageExt]) -> None:
        assert batch[0].properties["TRACE_ON"] == "false"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparrowmq.broker.broker.TRACE_FIELDS", {"TRACE_ON": "false"})
        _, lines, _ = consume(handle, Message("orders", b"x"))
    assert lines == []


def test_a_consumer_without_trace_calls_its_handler_directly() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr("sparrowmq.client.consuming.push_consumer.HookCalls")
        _, lines, _ = consume(lambda batch: None, Message("orders", b"x"), trace=False)
    assert lines == []


def test_a_recalled_message_leaves_its_own_trace_line() -> None:
    with SimCluster(seed=1).run() as sim:
        client = sim.client_on("client")

        async def work() -> str:
            await client.start()
            async with Producer("orders-svc", client=client, trace=True) as producer:
                sent = await producer.send(Message("orders", b"later", delay_ms=60_000))
                await producer.recall(sent.recall_handle)
            await client.stop()
            return sent.msg_id

        msg_id = sim.run(work(), on=sim.host("client"))
        lines, keys = traced(sim)
        line = next(line for line in lines if line[0] == "Recall")
        assert line[2:] == ["DefaultRegion", "orders-svc", "orders", msg_id, "true"]
        assert keys == {msg_id}
