"""The transactional producer: half messages, local transactions, and what brokers learn."""

import asyncio
from typing import Any

import pytest

from sparrowmq.client.client import core_of
from sparrowmq.client.errors import SendFailed
from sparrowmq.client.sending.producer import Producer
from sparrowmq.client.sending.transactional_producer import (
    HalfMessage,
    TransactionalProducer,
    TransactionResult,
    TransactionState,
)
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.transactions import CheckTransactionState, EndTransaction
from sparrowmq.protocol.ids import OffsetId
from sparrowmq.protocol.message import Message
from sparrowmq.protocol.message_ext import MessageExt, decode_messages
from sparrowmq.protocol.properties import parse_properties
from sparrowmq.protocol.record import decode_record, encode_record, topic_part
from sparrowmq.protocol.sys_flag import TRANSACTION_PREPARED
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.bookings import COMMIT, ROLLBACK, UNKNOWN, Bookings
from tests.client.scripted import World, world


def in_transaction(w: World, listener: Any, **message: Any) -> TransactionResult:
    async def on_the_host() -> TransactionResult:
        client = w.client()
        await client.start()
        threads = InlineWorkers()
        settings: Any = {"client": client, "threads": threads}
        async with TransactionalProducer("orders-svc", listener, **settings) as producer:
            result = await producer.send_in_transaction(
                Message("orders", b"x", **message), argument="the argument"
            )
        await client.stop()
        return result

    return w.sim.run(on_the_host(), on=w.sim.host("producer"))


def ended(w: World) -> list[int]:
    return [header.commit_or_rollback for b in w.brokers.values() for header in b.ended]


@pytest.mark.parametrize("state", TransactionState)
def test_a_half_message_is_stored_and_the_end_of_its_transaction_reported(
    state: TransactionState,
) -> None:
    listener = Bookings(executed=state)
    with world() as w:
        result = in_transaction(w, listener)
        broker = w.brokers["a"]
        (half,), (end,) = broker.sent, broker.ended
    assert (result.state, result.status) == (state, "SEND_OK")
    assert half.sys_flag & TRANSACTION_PREPARED
    properties = parse_properties(half.properties)
    assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "orders-svc")
    assert end.commit_or_rollback == state.value
    assert (end.tran_state_table_offset, end.commit_log_offset) == (result.queue_offset, 1)
    assert (end.msg_id, end.producer_group) == (result.msg_id, "orders-svc")
    assert not end.from_transaction_check
    (executed,) = listener.halves
    assert executed.argument == "the argument"
    assert executed.transaction_id == result.msg_id == result.transaction_id


def test_the_end_carries_the_transaction_id_that_the_broker_gave() -> None:
    with world("a") as w:
        w.brokers["a"].transaction_id = "t-9"
        result = in_transaction(w, Bookings())
        (end,) = w.brokers["a"].ended
    assert end.transaction_id == "t-9"
    assert result.transaction_id == result.msg_id


def test_brokers_know_the_producer_before_its_half_message_arrives() -> None:
    with world() as w:
        in_transaction(w, Bookings())
        assert [broker.producer_groups[:1] for broker in w.brokers.values()] == [
            [["orders-svc"]]
        ] * 3
        assert w.attempts == ["A1"]
        assert w.brokers["a"].sent_before_heartbeats[0] == 0


def test_a_listener_may_be_async() -> None:
    class Slow(Bookings):
        async def execute(self, half: HalfMessage) -> TransactionState:  # type: ignore[override]
            await asyncio.sleep(5)
            return COMMIT

    with world() as w:
        assert in_transaction(w, Slow()).state is COMMIT
        assert ended(w) == [COMMIT.value]


@pytest.mark.parametrize("answer", [RuntimeError("database gone"), None])
def test_a_listener_that_fails_leaves_the_end_open_for_the_broker_to_ask(answer: Any) -> None:
    with world() as w:
        assert in_transaction(w, Bookings(executed=answer)).state is UNKNOWN
        assert ended(w) == [UNKNOWN.value]


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    ],
)
def test_an_unsafely_stored_half_message_is_rolled_back_without_calling_the_listener(
    code: ResponseCode,
) -> None:
    listener = Bookings()
    with world() as w:
        w.brokers["a"].script = [code]
        assert in_transaction(w, listener).state is ROLLBACK
        assert ended(w) == [ROLLBACK.value]
    assert listener.halves == []


def test_the_listener_is_not_called_if_no_broker_accepts_the_half_message() -> None:
    listener = Bookings()
    with world("a") as w:
        w.brokers["a"].script = [ResponseCode.SYSTEM_ERROR] * 3
        with pytest.raises(SendFailed):
            in_transaction(w, listener)
        assert ended(w) == []
    assert listener.halves == []


def test_a_delayed_message_cannot_be_in_a_transaction() -> None:
    with world() as w:
        with pytest.raises(ValueError, match="delayed and in a transaction"):
            in_transaction(w, Bookings(), delay_level=3)
        assert w.attempts == []


def test_the_answer_to_a_check_repeats_the_fields_of_the_check() -> None:
    question = CheckTransactionState(
        topic="orders",
        tran_state_table_offset=7,
        commit_log_offset=1234,
        transaction_id="t-1",
    )

    async def ask() -> Any:
        client = sim.client_on("producer")
        await client.start()
        settings: Any = {"client": client, "threads": InlineWorkers()}
        async with TransactionalProducer("orders-svc", listener, **settings):
            answer = await core_of(client).producers["orders-svc"].check_transaction(half, question)
        await client.stop()
        return answer

    with SimCluster(seed=1).run() as sim:
        half = sim.wait(stored(sim))
        listener = Bookings(checked=ROLLBACK)
        answer = sim.run(ask(), on=sim.host("producer"))
    assert answer == EndTransaction(
        producer_group="orders-svc",
        tran_state_table_offset=7,
        commit_log_offset=1234,
        commit_or_rollback=ROLLBACK.value,
        from_transaction_check=True,
        msg_id=half.msg_id,
        transaction_id="t-1",
        topic="orders",
    )


def stored(sim: RunningCluster) -> "asyncio.Future[MessageExt]":
    async def send_and_read() -> MessageExt:
        client = sim.client_on("sender")
        await client.start()
        async with Producer("sender", client=client) as producer:
            sent = await producer.send(Message("orders", b"x"))
        await client.stop()
        record = sim.broker.store.read_message(OffsetId.parse(sent.offset_msg_id).log_offset)
        assert record is not None
        return decode_messages(record)[0]

    return sim.host("sender").start(send_and_read())


def test_a_producer_registers_again_at_a_restarted_broker() -> None:
    async def send_two() -> None:
        client = w.client()
        await client.start()
        settings: Any = {"client": client, "threads": InlineWorkers()}
        async with TransactionalProducer("orders-svc", Bookings(), **settings) as producer:
            await producer.send_in_transaction(Message("orders", b"x"))
            await asyncio.sleep(1)
            for connection in w.brokers["a"].connections:
                connection.abort()
            await asyncio.sleep(1)
            assert len(w.brokers["a"].producer_groups) == 1
            await producer.send_in_transaction(Message("orders", b"x"))
            await asyncio.sleep(1)
            assert len(w.brokers["a"].producer_groups) == 2
        await client.stop()

    with world("a") as w:
        w.sim.run(send_two(), on=w.sim.host("producer"))


def test_a_listener_whose_own_task_was_cancelled_leaves_the_transaction_open() -> None:
    class Cancelled(Bookings):
        async def execute(self, half: HalfMessage) -> TransactionState:  # type: ignore[override]
            lost: asyncio.Future[TransactionState] = asyncio.get_running_loop().create_future()
            lost.cancel()
            return await lost

    with world("a") as w:
        assert in_transaction(w, Cancelled()).state is UNKNOWN


def test_a_cancelled_transaction_stops_there_and_stays_open() -> None:
    class Waits(Bookings):
        async def execute(self, half: HalfMessage) -> TransactionState:  # type: ignore[override]
            self.halves.append(half)
            await asyncio.Event().wait()
            return COMMIT

    async def give_up() -> None:
        client = w.client()
        await client.start()
        settings: Any = {"client": client, "threads": InlineWorkers()}
        async with TransactionalProducer("orders-svc", listener, **settings) as producer:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(60):
                    await producer.send_in_transaction(Message("orders", b"x"))
        await client.stop()

    listener = Waits()
    with world("a") as w:
        w.sim.run(give_up(), on=w.sim.host("producer"))
        assert len(listener.halves) == 1
        assert ended(w) == []


def stored_message() -> MessageExt:
    host = bytes((127, 0, 0, 1, 0, 0, 0, 1))
    topic = topic_part("orders")
    record = encode_record(topic, 0, 0, 0, 0, 0, 1, host, 2, host, 0, 0, b"x", b"")
    return MessageExt(decode_record(record), "broker-a")


def test_a_check_after_the_stop_is_not_answered_and_the_transaction_stays_open() -> None:
    """The broker asked while the producer stopped; it asks other producers of the group later."""
    listener = Bookings()
    question = CheckTransactionState(tran_state_table_offset=0, commit_log_offset=0)

    async def ask() -> Any:
        client = sim.client_on("producer")
        await client.start()
        async with TransactionalProducer("orders-svc", listener, client=client):
            calls = core_of(client).producers["orders-svc"]
        answer = await calls.check_transaction(stored_message(), question)
        await client.stop()
        return answer

    with SimCluster(seed=1).run() as sim:
        answer = sim.run(ask(), on=sim.host("producer"))
    assert answer is not None
    assert answer.commit_or_rollback == UNKNOWN.value
    assert listener.halves == []
