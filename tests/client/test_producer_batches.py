"""Batches: what goes together, what does not, and where they are split."""

from typing import Any

import pytest

from sparrowmq.client.errors import BrokerRefused
from sparrowmq.client.sending.producer import Producer
from sparrowmq.protocol.batch import decode_batch
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.message import Message
from sparrowmq.protocol.properties import parse_properties
from tests.client.scripted import world


def test_messages_of_a_batch_arrive_in_one_send_to_one_queue() -> None:
    async def send(producer: Producer) -> Any:
        return await producer.send_batch([Message("orders", b"%d" % n) for n in range(10)])

    with world() as w:
        (result,) = w.produce(send)
        assert w.attempts == ["A1"]
        assert [body for _, body, _ in decode_batch(w.brokers["a"].bodies[0])] == [
            b"%d" % n for n in range(10)
        ]
        assert len(set(result.msg_id.split(","))) == 10
        (header,) = w.brokers["a"].sent
        assert (header.batch, header.sys_flag, header.flag) == (True, 0, 0)


def test_a_batch_over_the_limit_is_split_into_sends_that_fit_it() -> None:
    async def send(producer: Producer) -> Any:
        messages = [Message("orders", b"x" * 1000, properties={"ä": "ü" * 50}) for _ in range(50)]
        return await producer.send_batch(messages)

    with world() as w:
        results = w.produce(send, max_body_bytes=10_000)
        bodies = [body for broker in w.brokers.values() for body in broker.bodies]
        assert len(results) == len(bodies) > 5
        assert all(len(body) <= 10_000 for body in bodies)
        assert sum(len(decode_batch(body)) for body in bodies) == 50


def test_the_error_of_a_split_batch_lists_what_is_already_stored() -> None:
    messages = [Message("orders", b"x" * 1000) for _ in range(20)]

    async def send(producer: Producer) -> list[str]:
        with pytest.raises(BrokerRefused) as raised:
            await producer.send_batch(messages)
        return [msg_id for result in raised.value.stored for msg_id in result.msg_id.split(",")]

    with world("a") as w:
        w.brokers["a"].script = [ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL]
        stored = w.produce(send, max_body_bytes=10_000)
        first, _ = w.brokers["a"].bodies
        assert len(stored) == len(decode_batch(first)) > 5


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([], "at least one message"),
        ([Message("a", b"x"), Message("b", b"x")], "a batch has one topic, this one has a and b"),
        ([Message("a", b"x", delay_level=3)], "cannot be delayed"),
        ([Message("a", b"x", delay_ms=10)], "cannot be delayed"),
        ([Message("%RETRY%g", b"x")], "is a retry topic"),
        ([Message("a", b"x"), Message("a", b"x", wait_store_ok=False)], "differ in wait_store_ok"),
        ([Message("a", b"x"), Message("a", b"x" * 10_000)], "at most 10000 fit a batch"),
    ],
)
def test_what_cannot_go_together_is_refused_before_anything_is_sent(
    messages: list[Message], fault: str
) -> None:
    async def send(producer: Producer) -> None:
        with pytest.raises(ValueError, match=fault):
            await producer.send_batch(messages)

    with world() as w:
        w.produce(send, max_body_bytes=10_000)
        assert w.attempts == []
        assert w.asked == []


def test_a_batch_is_split_where_it_would_be_one_byte_too_large() -> None:
    async def send(producer: Producer) -> int:
        return len(await producer.send_batch([Message("orders", b"x" * 100)] * 2))

    with world("a") as w:
        w.produce(send)
        (together,) = w.brokers["a"].bodies
    for limit, sends in ((len(together), 1), (len(together) - 1, 2), (len(together) // 2, 2)):
        with world("a") as w:
            assert w.produce(send, max_body_bytes=limit) == sends
            assert b"".join(w.brokers["a"].bodies).count(b"x" * 100) == 2


@pytest.mark.parametrize(("waits", "property_text"), [(True, "true"), (False, "false")])
def test_a_batch_waits_for_the_disk_where_its_messages_do(waits: bool, property_text: str) -> None:
    async def send(producer: Producer) -> None:
        await producer.send_batch([Message("orders", b"x", wait_store_ok=waits)] * 2)

    with world("a") as w:
        w.produce(send)
        (header,) = w.brokers["a"].sent
    assert parse_properties(header.properties)["WAIT"] == property_text
