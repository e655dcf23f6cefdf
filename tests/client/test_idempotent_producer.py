"""An idempotent producer repeats a send to the same queue and to no other."""

from typing import Any

import pytest

from sparrowmq.client.errors import BrokerRefused, NotDeduplicated, SendFailed
from sparrowmq.client.sending.producer import Producer
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.message import Message, MessageQueue
from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.members import create_topic
from tests.client.scripted import Answer, World, world

BUSY, ERROR = ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_ERROR
GONE, ILLEGAL = ResponseCode.TOPIC_NOT_EXIST, ResponseCode.MESSAGE_ILLEGAL


async def send_one(producer: Producer) -> Any:
    return await producer.send(Message("orders", b"x"))


async def send_to_a2(producer: Producer) -> Any:
    return await producer.send(Message("orders", b"x"), queue=MessageQueue("orders", "broker-a", 1))


async def send_two(producer: Producer) -> Any:
    return await producer.send_batch([Message("orders", b"x"), Message("orders", b"y")])


def deduplicating(w: World, value: str = "on") -> World:
    for broker in w.brokers.values():
        broker.dedup = value
    return w


@pytest.mark.parametrize("retries", [0, 2])
@pytest.mark.parametrize(
    ("script", "attempts"),
    [
        # an unknown outcome: the same queue, as often as need be
        (["silent"], ["A1", "A1"]),
        (["hang up"], ["A1", "A1"]),
        ([ERROR], ["A1", "A1"]),
        (["hang up", "silent", ERROR], ["A1", "A1", "A1", "A1"]),
        # and also where the broker is busy, or without the topic, meanwhile
        (["hang up", BUSY, GONE], ["A1", "A1", "A1", "A1"]),
        # a refusal: another broker
        ([BUSY], ["A1", "B1"]),
        ([GONE], ["A1", "B1"]),
        ([BUSY, "hang up"], ["A1", "B1"]),
    ],
)
def test_a_send_is_repeated_where_its_outcome_is_unknown(
    script: list[Answer], attempts: list[str], retries: int
) -> None:
    with world() as w:
        deduplicating(w).brokers["a"].script = list(script)
        assert w.produce(send_one, idempotent=True, retries=retries, timeout_s=10).is_ok
        assert w.attempts == attempts
        sent = [header.properties for broker in w.brokers.values() for header in broker.sent]
        assert len(set(sent)) == 1  # one unique id


def test_a_batch_is_repeated_with_the_same_ids() -> None:
    with world() as w:
        deduplicating(w).brokers["a"].script = ["silent"]
        w.produce(send_two, idempotent=True)
        assert w.attempts == ["A1", "A1"]
        first, second = w.brokers["a"].bodies
        assert first == second


@pytest.mark.parametrize(
    ("script", "attempts"),
    [(["silent", "hang up", ERROR, BUSY], ["A2"] * 5), ([BUSY, BUSY, "silent"], ["A2"] * 4)],
)
def test_a_queue_that_was_chosen_is_kept(script: list[Answer], attempts: list[str]) -> None:
    with world() as w:
        deduplicating(w).brokers["a"].script = list(script)
        assert w.produce(send_to_a2, idempotent=True, timeout_s=10).is_ok
        assert w.attempts == attempts


@pytest.mark.parametrize("send", [send_one, send_to_a2])
def test_a_refusal_that_any_broker_would_give_is_raised(send: Any) -> None:
    with world() as w:
        deduplicating(w).brokers["a"].script = [ILLEGAL]
        with pytest.raises(BrokerRefused):
            w.produce(send, idempotent=True)
        assert len(w.attempts) == 1


@pytest.mark.parametrize(
    ("script", "is_unknown"),
    [
        (["silent"] * 99, True),
        (["hang up", *[BUSY] * 99], True),
        (["hang up", ILLEGAL], True),
        ([BUSY] * 999, False),
    ],
)
def test_the_error_says_whether_the_outcome_is_unknown(
    script: list[Answer], is_unknown: bool
) -> None:
    with world("a") as w:
        deduplicating(w).brokers["a"].script = list(script)
        with pytest.raises(SendFailed) as raised:
            w.produce(send_one, idempotent=True, timeout_s=2)
        assert raised.value.may_be_stored is is_unknown
        assert ("whether the message is stored is unknown" in str(raised.value)) is is_unknown


@pytest.mark.parametrize(("answer", "is_unknown"), [("silent", True), (BUSY, False), (GONE, False)])
def test_the_error_of_any_producer_says_whether_the_outcome_is_unknown(
    answer: Answer, is_unknown: bool
) -> None:
    with world("a") as w:
        w.brokers["a"].script = [answer] * 999
        with pytest.raises(SendFailed) as raised:
            w.produce(send_one, timeout_s=2)
        assert raised.value.may_be_stored is is_unknown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "sparrowmq topic update orders --attribute sparrowmq.dedup=on"),
        ("2s", "it remembers messages for 2 s, and they may be repeated for 3 s"),
    ],
)
def test_a_topic_that_is_not_deduplicated_is_refused_before_anything_is_sent(
    value: str | None, text: str
) -> None:
    with world() as w:
        if value is not None:
            deduplicating(w, value)
        with pytest.raises(NotDeduplicated, match="not de-duplicated at broker-a") as raised:
            w.produce(send_one, idempotent=True)
        assert text in str(raised.value)
        assert w.attempts == []


def test_a_topic_that_is_not_deduplicated_any_more_gets_no_second_copy() -> None:
    with world() as w:
        broker = deduplicating(w).brokers["a"]

        async def send(producer: Producer) -> None:
            await producer.send(
                Message("orders", b"x"), queue=MessageQueue("orders", "broker-a", 0)
            )
            broker.dedup, broker.script = None, ["silent"]
            await producer.send(
                Message("orders", b"y"), queue=MessageQueue("orders", "broker-a", 0)
            )

        with pytest.raises(SendFailed, match=r"it is off.*is unknown") as raised:
            w.produce(send, idempotent=True)
        assert raised.value.may_be_stored
        assert w.attempts == ["A1", "A1"]


def test_a_message_that_is_stored_already_is_answered_with_its_id() -> None:
    async def send_twice() -> None:
        client = sim.client_on("producer")
        await client.start()
        async with Producer("orders-svc", client=client, idempotent=True) as producer:
            key = {"DEDUP_KEY": "o-1"}
            both = [await producer.send(Message("orders", b"x", properties=key)) for _ in "ab"]
            first, again = [(one.msg_id, one.offset_msg_id) for one in both]
            assert again == first
        await client.stop()

    with SimCluster(seed=1).run() as sim:
        create_topic(sim, attributes="+sparrowmq.dedup=on")
        sim.run(send_twice(), on=sim.host("producer"))
