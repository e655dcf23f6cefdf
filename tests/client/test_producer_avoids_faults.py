"""Fault avoidance: with `avoid_faults`, slow and failing brokers rest for a while."""

import asyncio

import pytest

from sparrowmq.client.sending.fault_avoidance import FaultAvoidance, pause_s
from sparrowmq.client.sending.producer import Producer
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.message import Message
from tests.client.scripted import world


@pytest.mark.parametrize(
    ("latency_ms", "seconds"),
    [
        (0, 0),
        (549, 0),
        (550, 2),
        (1_799, 2),
        (1_800, 5),
        (3_000, 6),
        (5_000, 10),
        (14_999, 10),
        (15_000, 30),
    ],
)
def test_the_slower_an_answer_the_longer_its_broker_rests(latency_ms: int, seconds: int) -> None:
    assert pause_s(latency_ms) == seconds


def test_a_failure_rests_a_broker_for_10_seconds() -> None:
    faults = FaultAvoidance()
    faults.failed("a", now_s=100)
    assert not faults.is_available("a", now_s=109.9)
    assert faults.is_available("a", now_s=110)
    assert faults.is_available("b", now_s=100)


def test_a_quick_answer_does_not_end_a_rest() -> None:
    faults = FaultAvoidance()
    faults.failed("a", now_s=100)
    faults.answered("a", latency_s=0.001, now_s=101)
    assert not faults.is_available("a", now_s=109)


def test_a_slow_answer_does_not_shorten_the_rest_after_a_failure() -> None:
    faults = FaultAvoidance()
    faults.failed("a", now_s=100)
    faults.answered("a", latency_s=0.6, now_s=101)
    assert not faults.is_available("a", now_s=109)


def test_a_broker_that_failed_is_not_used_for_10_seconds() -> None:
    async def send(producer: Producer) -> None:
        for _ in range(4):
            await producer.send(Message("orders", b"x"))
        await asyncio.sleep(10)
        for _ in range(4):
            await producer.send(Message("orders", b"x"))

    with world("ab") as w:
        w.brokers["a"].script = [ResponseCode.SYSTEM_BUSY]
        w.produce(send, avoid_faults=True)
        assert w.attempts[:5] == ["A1", "B1", "B2", "B1", "B2"]
        assert sorted(w.attempts[5:]) == ["A1", "A2", "B1", "B2"]


def test_by_default_a_producer_returns_to_a_failed_broker_with_the_next_message() -> None:
    async def send(producer: Producer) -> None:
        for _ in range(4):
            await producer.send(Message("orders", b"x"))

    with world("ab") as w:
        w.brokers["a"].script = [ResponseCode.SYSTEM_BUSY]
        w.produce(send)
        assert w.attempts == ["A1", "B1", "B2", "A1", "A2"]


def test_a_slow_broker_is_avoided_for_2_seconds() -> None:
    async def send(producer: Producer) -> None:
        for _ in range(3):
            await producer.send(Message("orders", b"x"))
        await asyncio.sleep(2)
        for _ in range(2):
            await producer.send(Message("orders", b"x"))

    with world("ab") as w:
        w.brokers["a"].script = [0.55]
        w.produce(send, avoid_faults=True)
        assert w.attempts == ["A1", "B1", "B2", "A1", "A2"]


def test_when_every_broker_rests_they_are_taken_in_turn_again() -> None:
    async def send(producer: Producer) -> None:
        for _ in range(3):
            await producer.send(Message("orders", b"x"))

    with world("ab") as w:
        w.brokers["a"].script = [0.55]
        w.brokers["b"].script = [0.55]
        w.produce(send, avoid_faults=True)
        assert w.attempts == ["A1", "B1", "B2"]
