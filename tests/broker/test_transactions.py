"""Transactions: delivered when committed, never otherwise, and asked about when forgotten."""

import random
from collections.abc import Iterator

import msgspec
import pytest

from sparrowmq.broker.consumers import Member
from sparrowmq.broker.topics import plain_topic
from sparrowmq.broker.transactions_progress import commit_progress
from sparrowmq.broker.transactions_recovery import records
from sparrowmq.net.reply import Reply
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.transactions import (
    CheckTransactionState,
    EndTransaction,
    ResumeCheckHalfMessage,
)
from sparrowmq.protocol.ids import OffsetId, offset_id
from sparrowmq.protocol.message_ext import decode_messages
from sparrowmq.protocol.names import (
    SCHEDULE_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from sparrowmq.protocol.sys_flag import (
    TRANSACTION_COMMIT,
    TRANSACTION_NONE,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from sparrowmq.store.errors import DiskFull
from sparrowmq.store.messages import PutMessage, Stored
from sparrowmq.store.recorded_calls import PowerCut
from tests.broker.delivery_world import DeliveryWorld, Peer, Sent

GROUP = "orders-svc"


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with new_world() as world:
        yield world


def new_world() -> DeliveryWorld:
    world = DeliveryWorld()
    world.broker.topics.put(plain_topic("orders", 4))
    return world


def half(world: DeliveryWorld, body: bytes = b"an order", **properties: str) -> Sent:
    return world.send("orders", body, queue_id=1, TRAN_MSG="true", PGROUP=GROUP, **properties)


def end(
    world: DeliveryWorld, sent: Sent, kind: int, *, asked: bool = False, group: str = GROUP
) -> Reply:
    header = EndTransaction(
        producer_group=group,
        tran_state_table_offset=sent.queue_offset,
        commit_log_offset=OffsetId.parse(sent.msg_id).log_offset,
        commit_or_rollback=kind,
        from_transaction_check=asked,
    )
    return world.call(header)


def answer(world: DeliveryWorld, peer: Peer, kind: int) -> Reply:
    """What a producer says to the last question."""
    question, _ = peer.calls[-1]
    assert isinstance(question, CheckTransactionState)
    header = EndTransaction(
        producer_group=GROUP,
        tran_state_table_offset=question.tran_state_table_offset,
        commit_log_offset=question.commit_log_offset,
        commit_or_rollback=kind,
        from_transaction_check=True,
    )
    return world.call(header, peer=peer)


def producer(world: DeliveryWorld, name: str = "p1", group: str = GROUP) -> Peer:
    peer = Peer(name)
    world.broker.producers.join(group, Member(name, peer.connection, "JAVA", 500, world.now_ms))
    return peer


def bodies(world: DeliveryWorld) -> list[bytes]:
    return [message.body for message in world.messages("orders", 1)]


# ---- half, commit, rollback


def test_a_half_message_is_not_delivered(world: DeliveryWorld) -> None:
    half(world)
    world.pass_time(1)
    assert bodies(world) == []


def test_a_committed_message_is_delivered_as_it_was_sent(world: DeliveryWorld) -> None:
    sent = half(world, TAGS="t", KEYS="k", mine="yes", UNIQ_KEY="U1")
    assert sent.queue_id == 1
    assert sent.transaction_id == "U1"
    assert end(world, sent, TRANSACTION_COMMIT).code == ResponseCode.SUCCESS
    (message,) = world.messages("orders", 1)
    assert (message.body, message.tags, message.keys) == (b"an order", "t", ("k",))
    assert message.user_properties["mine"] == "yes"
    assert message.flag == 7
    assert message.sys_flag & 0xC == TRANSACTION_COMMIT
    assert message.prepared_transaction_offset == OffsetId.parse(sent.msg_id).log_offset


def test_half_messages_and_operations_lie_as_in_apaches_store(world: DeliveryWorld) -> None:
    sent = half(world, UNIQ_KEY="U1", REAL_TOPIC="forged", TRANSACTION_CHECK_TIMES="14")
    (waiting,) = world.messages(TRANS_HALF_TOPIC)
    assert waiting.sys_flag & 0xC == TRANSACTION_NONE
    assert waiting.properties["REAL_TOPIC"] == "orders"
    assert waiting.properties["REAL_QID"] == "1"
    assert waiting.properties["__transactionId__"] == "U1"
    assert waiting.properties["TRAN_MSG"] == "true"
    assert "TRANSACTION_CHECK_TIMES" not in waiting.properties, "never believed"
    end(world, sent, TRANSACTION_ROLLBACK)
    (operation,) = world.messages(TRANS_OP_HALF_TOPIC)
    assert operation.body == b"0,"
    assert operation.tags == "d"


def test_the_flag_that_java_clients_set_is_taken_off_a_half_message(world: DeliveryWorld) -> None:
    header = world.send_header("orders", 1, {"TRAN_MSG": "true", "PGROUP": GROUP})
    reply = world.call(msgspec.structs.replace(header, sys_flag=TRANSACTION_PREPARED), b"x")
    assert reply.code == ResponseCode.SUCCESS
    (waiting,) = world.messages(TRANS_HALF_TOPIC)
    assert waiting.sys_flag & 0xC == TRANSACTION_NONE


def test_a_rolled_back_message_is_never_delivered(world: DeliveryWorld) -> None:
    peer = producer(world)
    assert end(world, half(world), TRANSACTION_ROLLBACK).code == ResponseCode.SUCCESS
    world.pass_time(600)
    assert bodies(world) == []
    assert peer.calls == []


@pytest.mark.parametrize("second", [TRANSACTION_COMMIT, TRANSACTION_ROLLBACK])
@pytest.mark.parametrize("first", [TRANSACTION_COMMIT, TRANSACTION_ROLLBACK])
@pytest.mark.parametrize("killed", [False, True])
def test_ending_a_transaction_again_changes_nothing(
    world: DeliveryWorld, first: int, second: int, killed: bool
) -> None:
    sent = half(world)
    end(world, sent, first)
    before = bodies(world)
    if killed:
        world.kill()
    log_end = world.broker.store.max_log_offset
    assert end(world, sent, second).code == ResponseCode.SUCCESS
    assert bodies(world) == before
    assert world.broker.store.max_log_offset == log_end


def test_a_delay_counts_from_the_commit_on(world: DeliveryWorld) -> None:
    sent = half(world, DELAY="1")
    world.pass_time(3)
    assert world.messages(SCHEDULE_TOPIC, 0) == []
    end(world, sent, TRANSACTION_COMMIT)
    world.now_ms += 999
    world.deliver()
    assert bodies(world) == []
    world.now_ms += 1
    world.deliver()
    assert bodies(world) == [b"an order"]
    world.pass_time(100)
    assert bodies(world) == [b"an order"]


def test_a_producer_without_the_group_property_is_known_by_its_header(
    world: DeliveryWorld,
) -> None:
    sent = world.send("orders", TRAN_MSG="true", queue_id=1)
    assert end(world, sent, TRANSACTION_COMMIT).code == ResponseCode.SUCCESS
    assert bodies(world) == [b"body"]


# ---- bad input


def test_what_does_not_fit_the_half_message_is_refused(world: DeliveryWorld) -> None:
    sent = half(world)
    plain = world.send("orders", b"plain")
    wrong_offset = msgspec.structs.replace(sent, queue_offset=5)
    log_end = world.broker.store.max_log_offset
    for reply, text in (
        (end(world, sent, TRANSACTION_COMMIT, group="others"), "not one of group others"),
        (end(world, wrong_offset, TRANSACTION_COMMIT), "queue offset 0, not 5"),
        (end(world, plain, TRANSACTION_COMMIT), "no half message at"),
    ):
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert text in reply.remark
    assert end(world, sent, 5).code == ResponseCode.INVALID_PARAMETER
    assert end(world, sent, TRANSACTION_NONE).code == ResponseCode.SUCCESS
    assert world.broker.store.max_log_offset == log_end
    assert len(world.broker.delivery.halves) == 1


def test_a_bad_delay_is_refused_before_the_transaction_begins(world: DeliveryWorld) -> None:
    reply = world.try_send("orders", TRAN_MSG="true", PGROUP=GROUP, DELAY="soon")
    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert len(world.broker.delivery.halves) == 0


def test_a_commit_to_a_topic_that_is_gone_ends_in_the_dead_letters(world: DeliveryWorld) -> None:
    sent = half(world)
    world.broker.topics.remove("orders")
    reply = end(world, sent, TRANSACTION_COMMIT)
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "topic orders does not exist any more" in reply.remark
    (dead,) = world.messages(f"%DLQ%{GROUP}")
    assert dead.properties["DLQ_ORIGIN_TOPIC"] == "orders"
    assert end(world, sent, TRANSACTION_COMMIT).code == ResponseCode.SUCCESS
    assert len(world.messages(f"%DLQ%{GROUP}")) == 1


# ---- asking


def test_a_forgotten_transaction_is_asked_about_after_6_s_and_then_every_30(
    world: DeliveryWorld,
) -> None:
    peer = producer(world)
    half(world)
    asked_s = []
    for _ in range(100):
        before = len(peer.calls)
        world.pass_time(1)
        world.deliver()
        if len(peer.calls) > before:
            asked_s.append((world.now_ms - 1_700_000_000_000) // 1000)
    assert asked_s == [6, 36, 66, 96]


def test_the_question_carries_the_message_and_where_it_lies_now(world: DeliveryWorld) -> None:
    peer = producer(world)
    half(world, UNIQ_KEY="U1", TAGS="t")
    world.pass_time(6)
    world.deliver()
    ((question, body),) = peer.calls
    (message,) = decode_messages(body)
    assert (message.topic, message.queue_id, message.body) == ("orders", 1, b"an order")
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert question.msg_id == question.transaction_id == "U1"
    again = world.messages(TRANS_HALF_TOPIC)[-1]
    assert question.tran_state_table_offset == again.queue_offset == 1
    assert question.commit_log_offset == again.log_offset
    assert answer(world, peer, TRANSACTION_COMMIT).code == ResponseCode.SUCCESS
    world.pass_time(600)
    assert bodies(world) == [b"an order"]
    assert len(peer.calls) == 1


def test_a_producer_killed_between_half_and_commit_is_replaced_by_another_of_its_group(
    world: DeliveryWorld,
) -> None:
    first = producer(world, "p1")
    half(world)
    world.broker.producers.forget(first.connection)
    stranger = producer(world, "p2", group="others")
    second = producer(world, "p3")
    world.pass_time(36)
    assert len(second.calls) >= 1
    assert first.calls == stranger.calls == []
    answer(world, second, TRANSACTION_COMMIT)
    world.pass_time(600)
    assert bodies(world) == [b"an order"]


def test_producers_are_asked_in_turn(world: DeliveryWorld) -> None:
    peers = [producer(world, f"p{number}") for number in range(3)]
    half(world)
    world.pass_time(6 + 5 * 30)
    world.deliver()
    assert [len(peer.calls) for peer in peers] == [2, 2, 2]


def test_fifteen_unknown_answers_set_a_transaction_aside(world: DeliveryWorld) -> None:
    peer = producer(world)
    half(world, UNIQ_KEY="U1", TAGS="t")
    other = half(world, b"another")
    world.pass_time(6 + 14 * 30)
    world.deliver()
    assert len(peer.calls) == 30
    answer(world, peer, TRANSACTION_NONE)
    assert world.messages(TRANS_CHECK_MAX_TIME_TOPIC) == []
    world.pass_time(31)
    world.deliver()
    aside = world.messages(TRANS_CHECK_MAX_TIME_TOPIC)
    assert [message.body for message in aside] == [b"an order", b"another"]
    assert [m.properties["TRANSACTION_CHECK_TIMES"] for m in aside] == ["15", "15"]
    assert aside[0].tags == "t"
    world.pass_time(600)
    assert len(peer.calls) == 30
    assert len(world.broker.delivery.halves) == 0
    assert end(world, other, TRANSACTION_COMMIT).code == ResponseCode.SUCCESS
    assert bodies(world) == []


def test_a_transaction_that_was_set_aside_is_asked_about_again_when_an_operator_says_so(
    world: DeliveryWorld,
) -> None:
    peer = producer(world)
    half(world, b"forgotten")
    world.pass_time(15 * 30 + 60)
    (kept,) = world.messages(TRANS_CHECK_MAX_TIME_TOPIC)
    asked = len(peer.calls)
    where = offset_id(world.broker.store_host, kept.log_offset)
    assert world.call(ResumeCheckHalfMessage(msg_id=where)).code == ResponseCode.SUCCESS
    world.kill()
    peer = producer(world)
    world.pass_time(6)
    world.deliver()
    assert asked == 15
    assert len(peer.calls) == 1
    assert answer(world, peer, TRANSACTION_COMMIT).code == ResponseCode.SUCCESS
    assert bodies(world) == [b"forgotten"]


@pytest.mark.parametrize("msg_id", ["nonsense", "half", "7F00000100002A9F0000000000FFFFFF"])
def test_only_what_was_set_aside_is_resumed(world: DeliveryWorld, msg_id: str) -> None:
    sent = half(world, b"pending")
    header = ResumeCheckHalfMessage(msg_id=sent.msg_id if msg_id == "half" else msg_id)
    assert world.call(header).code in (ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER)
    assert len(world.broker.delivery.halves) == 1


def test_a_group_without_a_live_producer_uses_up_no_questions(world: DeliveryWorld) -> None:
    half(world)
    world.pass_time(3600)
    assert world.messages(TRANS_CHECK_MAX_TIME_TOPIC) == []
    peer = producer(world)
    world.pass_time(5)
    world.deliver()
    assert len(peer.calls) == 1
    assert decode_messages(peer.calls[0][1])[0].properties["TRANSACTION_CHECK_TIMES"] == "1"


def test_a_commit_of_the_first_copy_counts_after_a_question(world: DeliveryWorld) -> None:
    peer = producer(world)
    sent = half(world)
    world.pass_time(7)
    assert len(peer.calls) == 1
    assert end(world, sent, TRANSACTION_COMMIT).code == ResponseCode.SUCCESS
    world.pass_time(600)
    assert bodies(world) == [b"an order"]
    assert len(peer.calls) == 1


def test_immunity_puts_off_the_first_question_and_late_ends_have_to_wait_for_it(
    world: DeliveryWorld,
) -> None:
    peer = producer(world)
    sent = half(world, CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    half(world, b"usual")
    world.pass_time(59)
    assert {decode_messages(body)[0].body for _, body in peer.calls} == {b"usual"}
    world.pass_time(1.001)
    reply = end(world, sent, TRANSACTION_COMMIT)
    assert reply.code == ResponseCode.ILLEGAL_OPERATION
    assert "60 s" in reply.remark
    world.deliver()
    assert decode_messages(peer.calls[-1][1])[0].body == b"an order"
    assert answer(world, peer, TRANSACTION_COMMIT).code == ResponseCode.SUCCESS
    assert bodies(world) == [b"an order"]


def test_a_half_message_without_room_for_the_count_is_set_aside(world: DeliveryWorld) -> None:
    peer = producer(world)
    room = world.config.max_properties_bytes
    for spare in range(480, 0, -20):
        reply = world.try_send(
            "orders", b"x", TRAN_MSG="true", PGROUP=GROUP, x="y" * (room - spare)
        )
        if reply.code != ResponseCode.SUCCESS:
            break
    world.pass_time(7)
    world.deliver()
    asked, aside = len(peer.calls), world.messages(TRANS_CHECK_MAX_TIME_TOPIC)
    assert asked > 0
    assert len(aside) > 0
    assert len(world.broker.delivery.halves) == asked
    for topic in (TRANS_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC):
        records_of = records(world.broker.store, topic, 0)
        assert max(len(record.properties) for record in records_of) <= room


def test_a_damaged_half_message_stops_nobody(world: DeliveryWorld) -> None:
    peer = producer(world)
    sent = half(world, b"broken")
    half(world, b"whole")
    world.flush()
    at = OffsetId.parse(sent.msg_id).log_offset
    path = "commitlog/00000000000000000000"
    data = bytearray(world.disk.files()[path])
    data[at + 4 : at + 8] = b"\0\0\0\0"
    world.disk.poke(path, bytes(data))
    world.pass_time(7)
    assert decode_messages(peer.calls[-1][1])[0].body == b"whole"


# ---- after crashes


def test_pending_transactions_are_found_again_after_a_kill(world: DeliveryWorld) -> None:
    sent = [half(world, b"%d" % number) for number in range(4)]
    end(world, sent[0], TRANSACTION_COMMIT)
    end(world, sent[2], TRANSACTION_ROLLBACK)
    world.kill()
    assert len(world.broker.delivery.halves) == 2
    assert end(world, sent[1], TRANSACTION_COMMIT).code == ResponseCode.SUCCESS
    peer = producer(world)
    world.pass_time(36)
    assert {decode_messages(body)[0].body for _, body in peer.calls} == {b"3"}
    assert bodies(world) == [b"0", b"1"]


def test_counts_survive_a_kill(world: DeliveryWorld) -> None:
    producer(world)
    half(world)
    world.pass_time(6 + 9 * 30 + 1)
    world.kill()
    peer = producer(world)
    world.pass_time(3600)
    assert len(peer.calls) == 5
    (aside,) = world.messages(TRANS_CHECK_MAX_TIME_TOPIC)
    assert aside.properties["TRANSACTION_CHECK_TIMES"] == "15"


def test_an_operation_that_finds_no_space_is_written_later(world: DeliveryWorld) -> None:
    sent = half(world)
    original_append = world.broker.store.append
    halves = world.broker.delivery.halves

    def append_or_full(put: PutMessage, now_ms: int) -> Stored:
        if put.topic == TRANS_OP_HALF_TOPIC:
            raise DiskFull("", 0, "no space")
        return original_append(put, now_ms)

    world.broker.store.append = append_or_full  # type: ignore[method-assign]
    assert end(world, sent, TRANSACTION_COMMIT).code == ResponseCode.SUCCESS
    assert end(world, sent, TRANSACTION_COMMIT).code == ResponseCode.SUCCESS
    assert bodies(world) == [b"an order"]
    assert halves.progress(9, 9)[0] == 0, "a restart would have to look at it"
    with pytest.raises(DiskFull):
        world.deliver()
    world.broker.store.append = original_append  # type: ignore[method-assign]
    world.deliver()
    assert [message.body for message in world.messages(TRANS_OP_HALF_TOPIC)] == [b"0,"]
    world.kill()
    assert len(world.broker.delivery.halves) == 0


def test_a_kill_between_the_new_copy_and_its_operation_leaves_one_transaction(
    world: DeliveryWorld,
) -> None:
    producer(world)
    half(world, UNIQ_KEY="U1")
    world.now_ms += 6_000
    original_append = world.broker.store.append

    def append_and_die(put: PutMessage, now_ms: int) -> Stored:
        if put.topic == TRANS_OP_HALF_TOPIC:
            raise PowerCut
        return original_append(put, now_ms)

    world.broker.store.append = append_and_die  # type: ignore[method-assign]
    with pytest.raises(PowerCut):
        world.deliver()
    world.kill()
    assert [one.checks for one in world.broker.delivery.halves] == [1]


def test_offsets_are_not_committed_before_what_they_stand_for_is_durable() -> None:
    for seed in range(20):
        with new_world() as world:
            producer(world)
            half(world)
            world.flush()
            world.now_ms += 6_000
            world.deliver()
            for _ in range(2):
                commit_progress(world.broker)
            world.run(world.tables.offsets.journal(world.broker.offsets, InlineWorkers()))
            world.lose_power(random.Random(seed))
            assert len(world.broker.delivery.halves) == 1, seed


def test_ended_transactions_are_not_read_again_at_every_start(world: DeliveryWorld) -> None:
    for number in range(5):
        end(world, half(world, b"%d" % number), TRANSACTION_COMMIT)
    waiting = half(world, b"waiting")
    world.save()
    offsets = world.broker.offsets
    assert offsets.get("CID_RMQ_SYS_TRANS", TRANS_HALF_TOPIC, 0) == 5
    assert offsets.get("CID_RMQ_SYS_TRANS", TRANS_OP_HALF_TOPIC, 0) == 5
    world.kill()
    assert len(world.broker.delivery.halves) == 1
    end(world, waiting, TRANSACTION_ROLLBACK)
    assert len(world.broker.delivery.halves) == 0


def _some_transactions(world: DeliveryWorld, said: dict[bytes, int], peer: Peer) -> None:
    for number in range(6):
        body = b"%d" % number
        kind = TRANSACTION_COMMIT if number % 2 else TRANSACTION_ROLLBACK
        sent = half(world, body)
        said[body] = TRANSACTION_NONE
        if number % 3 == 2:
            world.pass_time(7)
            assert answer(world, peer, kind).code == ResponseCode.SUCCESS
        else:
            assert end(world, sent, kind).code == ResponseCode.SUCCESS
        said[body] = kind
        world.save()


@pytest.mark.parametrize("power", [False, True])
def test_committed_is_delivered_and_rolled_back_never_whichever_call_a_crash_meets(
    power: bool,
) -> None:
    for call in range(1, 400):
        with new_world() as world:
            said: dict[bytes, int] = {}
            world.disk.cut_at(call)
            try:
                _some_transactions(world, said, producer(world))
            except PowerCut:
                pass
            else:
                assert call > 50
                return
            if power:
                world.lose_power(random.Random(call))
                # What was acknowledged within the last flush may be undone, whole.
                said.pop(next(reversed(said), b""), None)
            else:
                world.kill()
            peer = producer(world)
            world.pass_time(7)
            delivered = bodies(world)
            for body, kind in said.items():
                if kind == TRANSACTION_COMMIT:
                    assert body in delivered, call
                if kind == TRANSACTION_ROLLBACK:
                    assert body not in delivered, call
            asked = {decode_messages(text)[0].body for _, text in peer.calls}
            ended = {body for body, kind in said.items() if kind != TRANSACTION_NONE}
            assert asked.isdisjoint(ended), call
