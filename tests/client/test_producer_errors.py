"""A producer's errors explain what happened and carry the facts as attributes."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sparrowmq.client.errors import BrokerRefused, NoRoute, NotStarted, SendFailed
from sparrowmq.client.sending.producer import Producer
from sparrowmq.client.sending.transactional_producer import TransactionalProducer
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.message import Message, MessageQueue
from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.bookings import Bookings
from tests.client.scripted import world

M = Message("orders", b"x")
CALLS: dict[str, Callable[[Any], Coroutine[Any, Any, Any]]] = {
    "send": lambda producer: producer.send(M),
    "send_oneway": lambda producer: producer.send_oneway(M),
    "send_batch": lambda producer: producer.send_batch([M]),
    "send_in_transaction": lambda producer: producer.send_in_transaction(M),
    "request": lambda producer: producer.request(M),
    "reply": lambda producer: producer.reply(M, b"42"),
    "recall": lambda producer: producer.recall("handle"),
    "queues": lambda producer: producer.queues("orders"),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_call_on_an_unstarted_producer_raises_an_error_that_tells_how_to_start_it(
    call: str,
) -> None:
    producer = TransactionalProducer("orders-svc", Bookings())
    with pytest.raises(NotStarted, match=r"use `async with`, or start\(\) it"):
        asyncio.run(CALLS[call](producer))


def test_a_producer_that_was_stopped_does_not_run() -> None:
    async def stop_and_send(producer: Producer) -> None:
        await producer.stop()
        with pytest.raises(NotStarted, match="the producer is not running"):
            await producer.send(M)

    with world("a") as w:
        w.produce(stop_and_send)
        assert w.attempts == []


def test_a_missing_route_names_its_topic_and_the_remedy() -> None:
    with world("a") as w, pytest.raises(NoRoute) as raised:
        w.produce(lambda producer: producer.send(Message("new", b"x")))
    error = raised.value
    remedy = (
        "it does not exist and no broker creates topics; create it with: sparrowmq topic create new"
    )
    assert (error.topic, error.reason) == ("new", remedy)
    assert str(error) == f"no route for topic new: {remedy}"


def test_where_no_broker_is_registered_that_is_the_reason_and_not_the_topic() -> None:
    async def send() -> None:
        client = sim.client_on("shop")
        await client.start()
        try:
            async with Producer("shop", client=client) as producer:
                await producer.send(M)
        finally:
            await client.stop()

    with SimCluster(seed=1).run() as sim:
        (broker,) = sim.brokers.values()
        broker.stop()
        (name_server,) = sim.name_servers.values()
        name_server.restart()  # it has just started and remembers nothing
        text = "no route for topic orders: no broker is registered with the name server yet; one"
        with pytest.raises(NoRoute, match=text):
            sim.run(send(), on=sim.host("shop"))


def test_a_refusal_names_broker_code_and_reason() -> None:
    with world("a") as w:
        w.brokers["a"].script = [ResponseCode.MESSAGE_ILLEGAL]
        with pytest.raises(BrokerRefused) as raised:
            w.produce(CALLS["send"])
        address = w.brokers["a"].address
    error = raised.value
    assert (error.address, error.code, error.text) == (address, 13, "as the script says")
    assert str(error) == f"{address} answered 13 (MESSAGE_ILLEGAL): as the script says"


def test_a_failed_send_names_its_topic_and_every_attempt() -> None:
    async def send(producer: Producer) -> None:
        await producer.send(M, queue=MessageQueue("orders", "broker-b", 0))

    with world("ab") as w:
        w.brokers["b"].script = ["hang up"]
        with pytest.raises(SendFailed) as raised:
            w.produce(send)
    error = raised.value
    assert (error.topic, error.brokers) == ("orders", ["broker-b"])
    ((broker, reason),) = error.attempts
    assert (broker, reason in str(error)) == ("broker-b", True)
