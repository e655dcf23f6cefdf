"""Bad input is refused at the call, before any request is sent."""

from typing import Any

import pytest

from sparrowmq.client.client import client_around
from sparrowmq.client.sending.producer import Producer
from sparrowmq.client.sending.producer_member import core_of_producer
from sparrowmq.protocol.headers.messages import format_handle
from sparrowmq.protocol.message import Message, MessageQueue
from tests.client.scripted import world

HERE = MessageQueue("orders", "broker-a", 0)
ELSEWHERE = MessageQueue("payments", "broker-a", 0)


def test_the_least_that_settings_allow_is_enough() -> None:
    async def send(producer: Producer) -> bool:
        return (await producer.send(Message("orders", b"x"))).is_ok

    least = {"retries": 0, "default_queues": 1, "max_body_bytes": 1, "compress_from_bytes": 0}
    with world() as w:
        assert w.produce(send, **least)


@pytest.mark.parametrize(
    ("how", "fault"),
    [
        ({"queue": ELSEWHERE}, "the queue belongs to topic payments, the message to orders"),
        ({"queue": HERE, "key": "k"}, "cannot be combined"),
        ({"key": "k", "selector": lambda queues, message: queues[0]}, "cannot be combined"),
    ],
)
def test_an_invalid_queue_is_refused_before_anything_is_sent(
    how: dict[str, Any], fault: str
) -> None:
    async def send(producer: Producer) -> None:
        with pytest.raises(ValueError, match=fault):
            await producer.send(Message("orders", b"x"), **how)
        with pytest.raises(ValueError, match=fault):
            await producer.send_oneway(Message("orders", b"x"), **how)

    with world() as w:
        w.produce(send)
        assert (w.attempts, w.asked) == ([], [])


@pytest.mark.parametrize(
    ("call", "arguments", "fault"),
    [
        ("reply", (Message("orders", b"x"), b"42"), "must be a MessageExt"),
        ("recall", (None,), "recall_handle is None, must be a str"),
        ("queues", (None,), "topic name is None"),
        ("queues", ("a b",), "characters that are not allowed"),
    ],
)
def test_invalid_arguments_are_refused_before_any_request(
    call: str, arguments: tuple[Any, ...], fault: str
) -> None:
    async def make_it(producer: Producer) -> None:
        with pytest.raises(ValueError, match=fault):
            await getattr(producer, call)(*arguments)

    with world() as w:
        w.produce(make_it)
        assert (w.attempts, w.asked) == ([], [])


def test_a_timeout_of_0_or_less_is_refused_before_anything_is_sent() -> None:
    async def send(producer: Producer) -> None:
        message, handle = Message("orders", b"x"), format_handle("orders", "broker-a", 1, "id")
        for limit_s in (0, -1):
            fault = f"timeout_s is {limit_s}, must be more than 0"
            with pytest.raises(ValueError, match=fault):
                await producer.send(message, timeout_s=limit_s)
            with pytest.raises(ValueError, match=fault):
                await producer.send_batch([message], timeout_s=limit_s)
            with pytest.raises(ValueError, match=fault):
                await producer.request(message, timeout_s=limit_s)
            with pytest.raises(ValueError, match=fault):
                await producer.recall(handle, timeout_s=limit_s)

    with world() as w:
        w.produce(send)
        assert (w.attempts, w.asked) == ([], [])


@pytest.mark.parametrize("call", ["send", "send_oneway", "request", "send_batch"])
def test_a_body_that_is_too_large_is_refused_before_any_request(call: str) -> None:
    async def send(producer: Producer) -> None:
        message = Message("orders", b"x" * 11)
        with pytest.raises(ValueError, match="at most 10"):
            await getattr(producer, call)([message] if call == "send_batch" else message)

    with world() as w:
        w.produce(send, max_body_bytes=10)
        assert (w.attempts, w.asked) == ([], [])


def test_a_body_as_large_as_is_allowed_is_sent() -> None:
    async def send(producer: Producer) -> bool:
        return (await producer.send(Message("orders", b"x" * 10))).is_ok

    with world() as w:
        assert w.produce(send, max_body_bytes=10)


def test_a_selector_that_returns_a_queue_of_another_topic_is_refused() -> None:
    async def send(producer: Producer) -> None:
        with pytest.raises(ValueError, match="the queue belongs to topic payments"):
            await producer.send(Message("orders", b"x"), selector=lambda _, __: ELSEWHERE)

    with world() as w:
        w.produce(send)
        assert w.attempts == []


def test_two_producers_of_one_group_cannot_share_a_client() -> None:
    async def start_twin(producer: Producer) -> None:
        with pytest.raises(ValueError, match="has a producer of group orders-svc already"):
            await Producer("orders-svc", client=client_around(core_of_producer(producer))).start()
        with pytest.raises(ValueError, match="has a producer of group orders-svc already"):
            async with Producer("orders-svc", client=client_around(core_of_producer(producer))):
                raise AssertionError("a block that did not start is not entered")
        async with Producer("other", client=client_around(core_of_producer(producer))) as other:
            assert (await other.send(Message("orders", b"x"))).is_ok

    with world() as w:
        w.produce(start_twin)
