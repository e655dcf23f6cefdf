"""Request and reply: the asking side, the answering side, and the broker between them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sparrowmq.client.client import client_around
from sparrowmq.client.errors import BrokerRefused, NotStarted, SendFailed
from sparrowmq.client.sending.producer import Producer
from sparrowmq.client.sending.producer_member import core_of_producer
from sparrowmq.client.sending.request_reply import RequestTimedOut
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.message import Message
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.properties import parse_properties
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.scripted import world


def on_host(sim: RunningCluster, name: str, work: Callable[[Producer], Any]) -> Any:
    """Run the work with its own producer on its own host."""

    async def run() -> Any:
        client = sim.client_on(name)
        await client.start()
        async with Producer(f"{name}-svc", client=client) as producer:
            result = await work(producer)
        await client.stop()
        return result

    return sim.host(name).start(run())


def consumed(sim: RunningCluster) -> MessageExt:
    """Wait for the first message of the topic and take it as a consumer would."""

    def holders() -> list[str]:
        return [name for name, n in sim.brokers.items() if "questions" in n.broker.topics]

    sim.until(lambda: bool(holders()))
    (name,) = holders()
    address = sim.brokers[name].address
    found: list[MessageExt] = []
    for queue_id in range(4):
        pull = sim.client.pull("questions", queue_id=queue_id, offset=0, wait_s=0, address=address)
        found += sim.wait(pull).messages
    (message,) = found
    message.broker_name = name
    return message


def ask(body: bytes, timeout_s: float = 3.0) -> Callable[[Producer], Any]:
    async def asking(producer: Producer) -> MessageExt:
        return await producer.request(Message("questions", body), timeout_s=timeout_s)

    return asking


def answer(question: MessageExt, body: bytes) -> Callable[[Producer], Any]:
    async def answering(producer: Producer) -> Any:
        return await producer.reply(question, body)

    return answering


@pytest.mark.parametrize("brokers", [1, 2])
def test_a_request_is_answered_by_its_consumer(brokers: int) -> None:
    with SimCluster(seed=1, brokers=brokers).run() as sim:
        asking = on_host(sim, "asking", ask(b"how many?"))
        question = consumed(sim)
        assert question.body == b"how many?"
        sim.wait(on_host(sim, "answering", answer(question, b"42")))
        reply = sim.wait(asking)
        assert reply.body == b"42"
        assert reply.topic == "DefaultCluster_REPLY_TOPIC"
        assert reply.properties["MSG_TYPE"] == "reply"
        assert reply.properties["TTL"] == "3000"
        assert reply.born_host[0] == sim.host("answering").ip
        host, port = reply.store_host
        assert f"{host}:{port}" in {node.address for node in sim.brokers.values()}


def test_a_reply_reaches_the_one_that_asked_among_the_producers_of_a_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def ask_beside_another(producer: Producer) -> bytes:
        async with Producer(
            "second-svc", client=client_around(core_of_producer(producer))
        ) as second:
            return (await second.request(Message("questions", b"?"))).body

    with SimCluster(seed=1).run() as sim:
        asking = on_host(sim, "asking", ask_beside_another)
        sim.wait(on_host(sim, "answering", answer(consumed(sim), b"42")))
        assert sim.wait(asking) == b"42"
    assert "nobody waits" not in caplog.text


def test_a_large_reply_is_compressed_on_its_way_and_arrives_as_it_was() -> None:
    with SimCluster(seed=1).run() as sim:
        asking = on_host(sim, "asking", ask(b"all of it"))
        sim.wait(on_host(sim, "answering", answer(consumed(sim), b"x" * 100_000)))
        assert sim.wait(asking).body == b"x" * 100_000


def test_without_a_reply_a_request_ends_when_its_time_is_over() -> None:
    async def ask_in_vain(producer: Producer) -> None:
        with pytest.raises(
            RequestTimedOut, match=r"is stored \(is_stored is True\): is there a"
        ) as raised:
            await producer.request(Message("questions", b"?"), timeout_s=2)
        assert (raised.value.is_stored, raised.value.topic) == (True, "questions")
        assert raised.value.timeout_s == 2

    with SimCluster(seed=1).run() as sim:
        began_s = sim.now_s
        sim.wait(on_host(sim, "asking", ask_in_vain))
        assert 2 <= sim.now_s - began_s < 3


@pytest.mark.slow
def test_a_request_may_wait_for_ever() -> None:
    async def ask_and_give_up(producer: Producer) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(86_400):
                await producer.request(Message("orders", b"?"), timeout_s=float("inf"))

    with world("a") as w:
        w.produce(ask_and_give_up)
        (asked,) = w.brokers["a"].sent
    assert parse_properties(asked.properties)["TTL"] == str(2**31 - 1)


def test_a_late_reply_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    async def ask_twice(producer: Producer) -> bytes:
        with pytest.raises(RequestTimedOut):
            await producer.request(Message("questions", b"first"), timeout_s=1)
        await asyncio.sleep(2)
        return b"alive"

    with SimCluster(seed=1).run() as sim:
        asking = on_host(sim, "asking", ask_twice)
        question = consumed(sim)
        sim.advance(1.5)
        sim.wait(on_host(sim, "answering", answer(question, b"late")))
        assert sim.wait(asking) == b"alive"
    assert "no request waits for the reply" in caplog.text


def test_a_reply_to_a_requester_that_has_gone_is_refused() -> None:
    with SimCluster(seed=1).run() as sim:
        on_host(sim, "asking", ask(b"?"))
        question = consumed(sim)
        sim.host("asking").kill()
        sim.advance(1)
        with pytest.raises(BrokerRefused, match="is not connected to this broker"):
            sim.wait(on_host(sim, "answering", answer(question, b"42")))


def test_only_a_request_can_be_replied_to() -> None:
    async def send_plain(producer: Producer) -> Any:
        return await producer.send(Message("questions", b"plain"))

    with SimCluster(seed=1).run() as sim:
        sim.wait(on_host(sim, "asking", send_plain))
        with pytest.raises(ValueError, match=r"is not a request: it has no CORRELATION_ID"):
            sim.wait(on_host(sim, "answering", answer(consumed(sim), b"42")))


def test_a_request_no_broker_takes_fails_like_any_send() -> None:
    async def ask_busy(producer: Producer) -> None:
        with pytest.raises(SendFailed):
            await producer.request(Message("orders", b"?"))

    with world("a") as w:
        w.brokers["a"].script = [ResponseCode.SYSTEM_ERROR] * 3
        w.produce(ask_busy)


def test_a_request_that_is_not_stored_in_time_raises_an_error_that_tells_so() -> None:
    async def ask_silent(producer: Producer) -> None:
        with pytest.raises((RequestTimedOut, SendFailed)) as raised:
            await producer.request(Message("orders", b"?"), timeout_s=1)
        assert "not confirmed" in str(raised.value) or "did not answer" in str(raised.value)

    with world("a") as w:
        w.brokers["a"].script = ["silent"]
        w.produce(ask_silent)


def test_a_reply_goes_to_the_broker_that_had_the_request() -> None:
    async def reply(producer: Producer) -> None:
        await producer.reply(question, b"42")

    with SimCluster(seed=1).run() as sim:
        asking = on_host(sim, "asking", ask(b"?"))
        question = consumed(sim)
        with pytest.raises(RequestTimedOut):
            sim.wait(asking)
    with world() as w:
        w.routes["DefaultCluster_REPLY_TOPIC"] = w.route(2)
        question.broker_name = "broker-b"
        w.produce(reply)
        assert w.attempts == ["B1"]
        assert parse_properties(w.brokers["b"].sent[0].properties)["MSG_TYPE"] == "reply"


def test_a_producer_that_stops_does_not_let_requests_wait_for_their_time() -> None:
    async def ask_and_stop(producer: Producer) -> None:
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(failure_of(producer.request(Message("orders", b"?"))))
            await asyncio.sleep(1)
            await producer.stop()
            assert isinstance(await asking, NotStarted)

    with world("a") as w:
        w.produce(ask_and_stop)
        assert w.sim.now_s - w.start_s < 2


async def failure_of(work: Coroutine[Any, Any, Any]) -> Exception | None:
    try:
        await work
    except Exception as error:
        return error
    return None
