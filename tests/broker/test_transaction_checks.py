"""Forgotten transactions: when producers are asked, which of them, and how often."""

from collections.abc import Iterator

import msgspec
import pytest

from sparrowmq.net.errors import ConnectionLost
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.transactions import CheckTransactionState
from sparrowmq.protocol.ids import OffsetId
from sparrowmq.protocol.message_ext import decode_messages
from sparrowmq.protocol.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from sparrowmq.protocol.sys_flag import TRANSACTION_COMMIT
from tests.broker.delivery_world import DeliveryWorld, find_no_space, orders_world
from tests.broker.transaction_world import GROUP, answer, bodies, end, half, producer
from tests.broker.world import world_with


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with orders_world() as world:
        yield world


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


def test_the_check_carries_the_message_and_its_current_offset(world: DeliveryWorld) -> None:
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


def test_immunity_delays_the_first_check_and_late_ends_wait_for_it(
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


def test_a_damaged_half_message_does_not_stop_the_others(world: DeliveryWorld) -> None:
    peer = producer(world)
    sent = half(world, b"broken")
    half(world, b"whole")
    world.flush()
    at = OffsetId.parse(sent.msg_id).log_offset
    log = world.disk.open("commitlog/00000000000000000000")  # the file that the store has open
    log.write(at + 4, b"\0\0\0\0")
    log.close()
    world.pass_time(40)
    assert {decode_messages(body)[0].body for _, body in peer.calls} == {b"whole"}
    assert len(world.broker.delivery.halves) == 1


def kept_aside(world: DeliveryWorld) -> list[bytes]:
    return [kept.body for kept in world.messages(TRANS_CHECK_MAX_TIME_TOPIC)]


def test_a_transaction_is_given_up_if_no_producer_appears_within_the_retention_time(
    world: DeliveryWorld,
) -> None:
    half(world)
    world.now_ms += 72 * 3_600_000
    world.deliver()
    assert kept_aside(world) == []
    world.pass_time(4)
    assert kept_aside(world) == [b"an order"]
    assert len(world.broker.delivery.halves) == 0


def test_an_old_transaction_is_asked_about_when_its_producer_is_there(
    world: DeliveryWorld,
) -> None:
    half(world)
    world.now_ms += 80 * 3_600_000
    peer = producer(world)
    world.deliver()
    answer(world, peer, TRANSACTION_COMMIT)
    assert kept_aside(world) == []
    assert bodies(world) == [b"an order"]


@pytest.mark.parametrize("down_s", [0, 60, 7 * 24 * 3600])
@pytest.mark.parametrize("beat_s", [1, 31, 119])
def test_a_broker_that_was_down_waits_for_the_producers_before_it_gives_up_a_transaction(
    world: DeliveryWorld, down_s: int, beat_s: int
) -> None:
    """They are not known before their next heartbeat, which may take half a minute and more."""
    half(world)
    world.stop()
    world.now_ms += down_s * 1000
    world.start()
    world.pass_time(beat_s)
    peer = producer(world)
    world.pass_time(10)
    assert kept_aside(world) == []
    assert len(peer.calls) == 1
    answer(world, peer, TRANSACTION_COMMIT)
    assert bodies(world) == [b"an order"]


def test_a_transaction_from_before_a_long_pause_is_set_aside_when_its_producers_do_not_come(
    world: DeliveryWorld, caplog: pytest.LogCaptureFixture
) -> None:
    half(world)
    world.stop()
    world.now_ms += 7 * 24 * 3_600_000
    world.start()
    world.pass_time(130)
    assert kept_aside(world) == [b"an order"]
    assert "no producer of group orders-svc came" in caplog.text


def test_a_client_whose_clock_is_a_month_late_is_checked_like_any_other(
    world: DeliveryWorld,
) -> None:
    peer = producer(world)
    header = world.send_header("orders", 1, {"TRAN_MSG": "true", "PGROUP": GROUP})
    born_ms = world.now_ms - 30 * 24 * 3_600_000
    reply = world.call(msgspec.structs.replace(header, born_timestamp=born_ms), b"an order")
    assert reply.code == ResponseCode.SUCCESS
    world.pass_time(7)
    assert len(peer.calls) == 1
    assert kept_aside(world) == []


def test_a_producer_whose_connection_just_ended_is_skipped(
    world: DeliveryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, live = producer(world, "p1"), producer(world, "p2")

    def refuse(*_: object) -> None:
        raise ConnectionLost("p1", "closed")

    monkeypatch.setattr(lost, "send_oneway", refuse)
    half(world)
    world.pass_time(7)
    assert len(live.calls) == 1


def test_a_check_that_finds_no_space_is_sent_once_space_is_free(world: DeliveryWorld) -> None:
    peer = producer(world)
    half(world)
    world.now_ms += 6_000
    find_no_space(world)
    assert peer.calls == []
    world.now_ms += 1_000
    world.deliver()
    assert len(peer.calls) == 1
    assert decode_messages(peer.calls[0][1])[0].properties["TRANSACTION_CHECK_TIMES"] == "1"


def test_a_hundred_forgotten_transactions_are_asked_about_in_one_round(
    world: DeliveryWorld,
) -> None:
    peer = producer(world)
    for _ in range(100):
        half(world)
    world.now_ms += 6_000
    world.deliver()
    assert len(peer.calls) == 100


def test_a_late_end_has_to_wait_for_the_question_although_no_producer_was_asked_yet(
    world: DeliveryWorld,
) -> None:
    sent = half(world, CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    world.now_ms += 60_000
    early = half(world, b"in time", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    world.now_ms += 1
    assert end(world, sent, TRANSACTION_COMMIT).code == ResponseCode.ILLEGAL_OPERATION
    world.now_ms += 59_999
    assert end(world, early, TRANSACTION_COMMIT).code == ResponseCode.SUCCESS
    assert bodies(world) == [b"in time"]


def test_a_running_broker_asks_after_6_s_and_every_30() -> None:
    with world_with() as running:
        running.topic("orders", 1)
        live = running.client("p1")
        live.beat(producers=(GROUP,))
        running.send("orders", b"an order", TRAN_MSG="true", PGROUP=GROUP)
        for seconds, asked in ((5.9, 0), (0.2, 1), (29.7, 1), (0.3, 2)):
            running.sim.advance(seconds)
            live.beat(producers=(GROUP,))
            assert len(live.answered.of(CheckTransactionState)) == asked
