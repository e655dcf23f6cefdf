"""A message that is sent again is stored once and answered as the first time."""

import random
from collections.abc import Callable, Coroutine, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from sparrowmq.broker.config import Flush
from sparrowmq.broker.handlers.topics import delete_topic
from sparrowmq.broker.traffic.dedup import Dedup
from sparrowmq.net.routes import Request
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.messages import RecallableSent, RecallMessage
from sparrowmq.protocol.headers.topics import CreateTopic, DeleteTopic
from sparrowmq.protocol.sys_flag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from tests.broker.crashes import lose_log_from
from tests.broker.delivery_world import EPOCH_MS, DeliveryWorld, Sent, bodies, orders_world
from tests.broker.traffic.dedup_world import (
    batch_answer,
    dedup_topic,
    dedup_world,
    send_batch,
    stored,
)
from tests.broker.transaction_world import GROUP, answer, end, half, producer


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with dedup_world() as world:
        yield world


Restart = Callable[[DeliveryWorld], None]


def nothing(world: DeliveryWorld) -> None:
    """No restart."""


def stop_and_start(world: DeliveryWorld) -> None:
    world.stop()
    world.start()


def kill(world: DeliveryWorld) -> None:
    world.kill()


def cut_power(world: DeliveryWorld) -> None:
    world.flush()
    world.lose_power(random.Random(1))


def forget(world: DeliveryWorld) -> None:
    """Rebuild the window from the log."""
    world.broker.traffic.dedup = Dedup()


restarts = pytest.mark.parametrize("restart", [nothing, stop_and_start, kill, cut_power, forget])


def timed(world: DeliveryWorld, key: Mapping[str, str] = MappingProxyType({})) -> Sent:
    fields = {"UNIQ_KEY": "U1", "TIMER_DELIVER_MS": str(EPOCH_MS + 5_700)}
    return world.post("orders", b"body", {**fields, **key}, 2)


def prepared(world: DeliveryWorld, key: Mapping[str, str]) -> Sent:
    fields = {"UNIQ_KEY": "U1", "TRAN_MSG": "true", "PGROUP": GROUP}
    return world.post("orders", b"body", {**fields, **key}, 1)


KINDS: dict[str, Callable[[DeliveryWorld], Sent]] = {
    "plain": lambda world: world.send("orders", queue_id=1, UNIQ_KEY="U1"),
    "by its key": lambda world: world.send("orders", queue_id=1, DEDUP_KEY="o-1", TAGS="a"),
    "delayed": lambda world: world.send("orders", queue_id=3, UNIQ_KEY="U1", DELAY="3"),
    "timed": timed,
    "half": lambda world: half(world, UNIQ_KEY="U1"),
}


@pytest.mark.parametrize("flush", list(Flush))
@pytest.mark.parametrize("kind", KINDS)
@restarts
def test_a_message_that_is_sent_again_gets_the_first_answer(
    flush: Flush, kind: str, restart: Restart
) -> None:
    with dedup_world(flush=flush) as world:
        first = KINDS[kind](world)
        end = world.broker.store.max_log_offset
        restart(world)
        assert KINDS[kind](world) == first
        assert KINDS[kind](world) == first
        assert world.broker.store.max_log_offset == end
        assert world.broker.traffic.dedup.windows["orders"].duplicates == 2


@restarts
def test_the_window_counts_from_the_first_message(world: DeliveryWorld, restart: Restart) -> None:
    world.send("orders", UNIQ_KEY="U1")
    world.now_ms += 599_999
    restart(world)
    world.send("orders", UNIQ_KEY="U1")
    assert len(stored(world)) == 1
    world.now_ms += 1_201
    world.send("orders", UNIQ_KEY="U1")
    assert len(stored(world)) == 2


@restarts
def test_the_window_holds_at_most_the_configured_number_of_ids(restart: Restart) -> None:
    with dedup_world("10m/3") as world:
        for number in range(5):
            world.send("orders", queue_id=number % 4, UNIQ_KEY=f"U{number}")
        restart(world)
        for number in (2, 3, 4):
            world.send("orders", queue_id=0, UNIQ_KEY=f"U{number}")
        assert len(stored(world)) == 5
        world.send("orders", UNIQ_KEY="U1")
        assert len(stored(world)) == 6


def test_a_message_is_identified_by_its_id_whatever_its_queue_and_body(
    world: DeliveryWorld,
) -> None:
    first = world.send("orders", b"a", queue_id=1, UNIQ_KEY="U1")
    assert world.send("orders", b"b", queue_id=2, UNIQ_KEY="U1") == first
    assert stored(world) == [b"a"]


def test_a_key_and_a_unique_id_that_are_alike_are_two_messages(world: DeliveryWorld) -> None:
    world.send("orders", UNIQ_KEY="o-1")
    world.send("orders", DEDUP_KEY="o-1", UNIQ_KEY="U1")
    world.send("orders", DEDUP_KEY="o-2", UNIQ_KEY="U1")
    assert len(stored(world)) == 3


def test_messages_without_any_identity_are_all_stored(world: DeliveryWorld) -> None:
    for _ in range(3):
        world.send("orders")
        world.send("orders", UNIQ_KEY="", DEDUP_KEY="")
    assert len(stored(world)) == 6
    assert len(world.broker.traffic.dedup.windows["orders"]) == 0


def test_a_topic_without_the_attribute_stores_all() -> None:
    with orders_world() as world:
        for _ in range(2):
            world.send("orders", UNIQ_KEY="U1")
        assert len(bodies(world)) == 2
        assert "orders" in world.broker.topics.checked_for_send
        assert world.broker.traffic.dedup.windows == {}


def test_the_id_of_a_refused_message_is_not_recorded(world: DeliveryWorld) -> None:
    body = b"x" * (world.config.max_message_bytes + 1)
    assert world.try_send("orders", body, UNIQ_KEY="U1").code == ResponseCode.MESSAGE_ILLEGAL
    world.send("orders", b"short", UNIQ_KEY="U1")
    assert stored(world) == [b"short"]


def test_a_delivery_time_in_the_past_does_not_store_a_duplicate(world: DeliveryWorld) -> None:
    past = str(EPOCH_MS - 1)
    first = world.send("orders", UNIQ_KEY="U1", TIMER_DELIVER_MS=past)
    assert world.send("orders", UNIQ_KEY="U1", TIMER_DELIVER_MS=past) == first


# ---- what the broker stores again passes


@restarts
@pytest.mark.parametrize("kind", ["delayed", "timed"])
def test_a_due_message_is_delivered_and_its_id_stays_recorded(
    world: DeliveryWorld, kind: str, restart: Restart
) -> None:
    first = KINDS[kind](world)
    world.pass_time(60)
    assert len(stored(world)) == 1
    world.save()
    restart(world)
    assert KINDS[kind](world) == first
    world.pass_time(60)
    assert len(stored(world)) == 1


@restarts
def test_delivery_after_the_window_does_not_record_the_id_again(restart: Restart) -> None:
    with dedup_world("2s") as world:
        world.send("orders", UNIQ_KEY="U1", DELAY="3")  # 10 s
        world.pass_time(10)
        assert len(stored(world)) == 1
        world.save()
        restart(world)
        world.send("orders", UNIQ_KEY="U1")
        assert len(stored(world)) == 2


def test_a_retry_and_a_dead_letter_pass(world: DeliveryWorld) -> None:
    world.send("orders", UNIQ_KEY="U1")
    for times in (1, 2):
        reply = world.try_again("%RETRY%billing", b"body", times, 16, UNIQ_KEY="U1")
        assert reply.code == ResponseCode.SUCCESS
    world.pass_time(3600)
    assert len(world.messages("%RETRY%billing")) == 2
    message = world.messages("orders")[0]
    assert world.give_back(message, "billing", level=-1).code == ResponseCode.SUCCESS
    assert len(world.messages("%DLQ%billing")) == 1


# ---- transactions and recalls


@restarts
def test_the_id_of_a_committed_message_is_recorded(world: DeliveryWorld, restart: Restart) -> None:
    first = half(world, UNIQ_KEY="U1")
    end(world, first, TRANSACTION_COMMIT)
    assert len(stored(world)) == 1
    restart(world)
    assert half(world, UNIQ_KEY="U1") == first
    assert end(world, first, TRANSACTION_COMMIT).remark == "this transaction has ended before"
    assert len(stored(world)) == 1


@restarts
@pytest.mark.parametrize("key", [{}, {"DEDUP_KEY": "o-1"}])
def test_a_rollback_frees_the_identity(
    world: DeliveryWorld, key: dict[str, str], restart: Restart
) -> None:
    first = prepared(world, key)
    end(world, first, TRANSACTION_ROLLBACK)
    restart(world)
    second = prepared(world, key)
    assert second.queue_offset > first.queue_offset
    assert prepared(world, key) == second
    end(world, second, TRANSACTION_COMMIT)
    assert len(stored(world)) == 1


@restarts
def test_a_half_message_that_was_asked_about_is_still_the_same(
    world: DeliveryWorld, restart: Restart
) -> None:
    producer(world)
    half(world, UNIQ_KEY="U1")
    world.pass_time(7)  # asked, and stored again
    world.save()
    restart(world)
    again = half(world, UNIQ_KEY="U1")
    assert end(world, again, TRANSACTION_COMMIT).code == ResponseCode.SUCCESS
    assert len(stored(world)) == 1
    assert half(world, UNIQ_KEY="U1") == again


@restarts
def test_a_rollback_after_a_question_frees_the_identity(
    world: DeliveryWorld, restart: Restart
) -> None:
    peer = producer(world)
    first = half(world, UNIQ_KEY="U1")
    world.pass_time(7)
    answer(world, peer, TRANSACTION_ROLLBACK)
    restart(world)
    assert half(world, UNIQ_KEY="U1") != first


def test_an_old_rollback_does_not_free_a_message_that_was_sent_since() -> None:
    with dedup_world("1s") as world:
        first = half(world, UNIQ_KEY="U1")
        world.now_ms += 2_000
        second = half(world, UNIQ_KEY="U1")
        assert second != first
        end(world, first, TRANSACTION_ROLLBACK)
        assert half(world, UNIQ_KEY="U1") == second


def recall(world: DeliveryWorld, sent: Sent) -> None:
    assert isinstance(sent, RecallableSent)
    header = RecallMessage(topic="orders", recall_handle=sent.recall_handle, producer_group="g")
    assert world.call(header).code == ResponseCode.SUCCESS


@restarts
@pytest.mark.parametrize("key", [{}, {"DEDUP_KEY": "o-1"}])
def test_a_recall_frees_the_identity(
    world: DeliveryWorld, key: dict[str, str], restart: Restart
) -> None:
    first = timed(world, key)
    recall(world, first)
    restart(world)
    second = timed(world, key)
    assert second != first
    assert timed(world, key) == second
    world.pass_time(60)
    assert len(stored(world)) == 1


def test_a_recall_frees_no_other_message_with_the_same_unique_id(world: DeliveryWorld) -> None:
    handle = timed(world, {"DEDUP_KEY": "o-1"})
    plain = world.send("orders", UNIQ_KEY="U1")
    recall(world, handle)
    assert world.send("orders", UNIQ_KEY="U1") == plain
    forget(world)
    assert world.send("orders", UNIQ_KEY="U1") == plain


# ---- batches


@pytest.mark.parametrize("is_320", [True, False])
@restarts
def test_a_batch_that_is_sent_again_gets_the_first_answer(
    world: DeliveryWorld, is_320: bool, restart: Restart
) -> None:
    batch = [("U1", b"a"), ("U2", b"b"), ("U3", b"c")]
    first = batch_answer(send_batch(world, *batch, queue_id=2, is_320=is_320))
    restart(world)
    assert batch_answer(send_batch(world, *batch, queue_id=1, is_320=is_320)) == first
    assert stored(world) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("flush", list(Flush))
def test_of_a_mixed_batch_only_new_messages_are_stored_and_every_one_gets_an_id(
    flush: Flush,
) -> None:
    with dedup_world(flush=flush) as world:
        (known,), _, _ = batch_answer(send_batch(world, ("U1", b"a"), queue_id=1))
        batch = [("U2", b"b"), ("U1", b"a"), ("U3", b"c"), ("U2", b"twice"), ("", b"d")]
        ids, queue_id, offset = batch_answer(send_batch(world, *batch, queue_id=3))
        assert (queue_id, offset) == (3, 0)
        messages = world.messages("orders", 3)
        assert [one.body for one in messages] == [b"b", b"c", b"d"]
        new = [one.log_offset for one in messages]
        assert ids == [new[0], known, new[1], new[0], new[2]]
        assert batch_answer(send_batch(world, *batch[:3]))[0] == ids[:3]
        assert len(stored(world)) == 4


def test_a_batch_that_cannot_be_read_is_refused_as_without_a_window(world: DeliveryWorld) -> None:
    header = msgspec.structs.replace(world.send_header("orders", 0, {}), batch=True)
    for body in (b"", b"nonsense"):
        assert world.call(header, body).code == ResponseCode.MESSAGE_ILLEGAL


def test_one_message_of_a_batch_may_be_sent_again_alone(world: DeliveryWorld) -> None:
    ids, _, _ = batch_answer(send_batch(world, ("U1", b"a"), ("U2", b"b")))
    sent = world.send("orders", UNIQ_KEY="U2")
    assert (int(sent.msg_id[-16:], 16), sent.queue_offset) == (ids[1], 1)


# ---- topics that change


def put(world: DeliveryWorld, **fields: Any) -> None:
    world.broker.topics.put(msgspec.structs.replace(dedup_topic(), **fields))


def test_a_topic_that_enables_dedup_later_knows_the_ids_it_has_stored() -> None:
    with orders_world() as world:
        first = world.send("orders", UNIQ_KEY="U1")
        world.send("orders", UNIQ_KEY="U1")
        put(world)
        assert world.send("orders", UNIQ_KEY="U1") == first


def test_another_window_is_read_from_the_log_and_keeps_its_count(world: DeliveryWorld) -> None:
    for number in range(3):
        world.send("orders", UNIQ_KEY=f"U{number}")
    put(world, attributes={"sparrowmq.dedup": "10m/1"})
    world.send("orders", UNIQ_KEY="U2")
    world.send("orders", UNIQ_KEY="U0")
    assert len(stored(world)) == 4
    put(world, attributes={"sparrowmq.dedup": "on"})
    world.send("orders", UNIQ_KEY="U1")
    assert len(stored(world)) == 4
    window = world.broker.traffic.dedup.windows["orders"]
    assert (window.duplicates, window.cut) == (2, 1)


def test_queues_that_are_added_leave_the_window_as_it_is(world: DeliveryWorld) -> None:
    first = world.send("orders", UNIQ_KEY="U1")
    window = world.broker.traffic.dedup.windows["orders"]
    put(world, write_queue_nums=8, read_queue_nums=8)
    assert world.send("orders", UNIQ_KEY="U1", queue_id=7) == first
    assert world.broker.traffic.dedup.windows["orders"] is window


def test_without_the_attribute_duplicates_are_stored_and_no_ids_are_kept(
    world: DeliveryWorld,
) -> None:
    world.send("orders", UNIQ_KEY="U1")
    put(world, attributes={})
    world.send("orders", UNIQ_KEY="U1")
    assert len(stored(world)) == 2
    assert world.broker.traffic.dedup.windows == {}


def delete(world: DeliveryWorld) -> None:
    """Without waiting for the answer, which comes when progress is saved."""
    request = Request(
        DeleteTopic(topic="orders"), b"", 1, 0, "JAVA", 500, False, world.peer.connection
    )
    answered = delete_topic(world.broker, request)
    assert isinstance(answered, Coroutine)
    answered.close()


@restarts
def test_a_recreated_topic_knows_no_ids(world: DeliveryWorld, restart: Restart) -> None:
    world.send("orders", UNIQ_KEY="U1")
    world.send("orders", UNIQ_KEY="U2", DELAY="18")
    delete(world)
    put(world)
    restart(world)
    put(world)
    world.send("orders", UNIQ_KEY="U1")
    world.send("orders", UNIQ_KEY="U2")
    assert len(stored(world)) == 2


@pytest.mark.parametrize("topic", ["%RETRY%billing", "%DLQ%billing"])
def test_topics_of_retries_and_dead_letters_cannot_ask_for_it(
    world: DeliveryWorld, topic: str
) -> None:
    header = CreateTopic(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=1,
        write_queue_nums=1,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        order=False,
        attributes="+sparrowmq.dedup=on",
    )
    reply = world.call(header)
    assert reply.code == ResponseCode.INVALID_PARAMETER
    assert "never de-duplicated" in reply.remark
    # and one that has it from elsewhere is not
    world.broker.topics.put(dedup_topic(topic))
    for _ in range(2):
        world.try_again(topic, b"body", 0, UNIQ_KEY="U1")
    assert len(world.messages(topic)) == 2


def test_an_invalid_value_from_another_tool_means_the_default_window(
    world: DeliveryWorld,
) -> None:
    put(world, attributes={"sparrowmq.dedup": "nonsense"})
    assert world.send("orders", UNIQ_KEY="U1") == world.send("orders", UNIQ_KEY="U1")


# ---- clocks, lost records, room


@restarts
@pytest.mark.parametrize("by_ms", [-7_200_000, -500_000, 500_000, 7_200_000])
def test_a_clock_that_is_set_moves_no_window(
    world: DeliveryWorld, by_ms: int, restart: Restart
) -> None:
    world.send("orders", UNIQ_KEY="U1")
    world.now_ms += 300_000
    world.set_clock(by_ms)
    world.send("orders", UNIQ_KEY="U2", DELAY="3")  # waits until the step is saved
    world.now_ms += 299_999
    restart(world)
    world.send("orders", UNIQ_KEY="U1")
    assert len(stored(world)) == 1
    world.now_ms += 1_300
    world.send("orders", UNIQ_KEY="U1")
    assert len(stored(world)) == 2


def test_a_duplicate_whose_first_record_expired_is_not_stored_again(world: DeliveryWorld) -> None:
    first = world.send("orders", queue_id=1, UNIQ_KEY="U1")
    send_batch(world, ("U2", b"a"))
    end = world.broker.store.max_log_offset
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.broker.store, "read_record", lambda log_offset: None)
        reply = world.try_send("orders", queue_id=3, UNIQ_KEY="U1")
        batch = send_batch(world, ("U2", b"a"), queue_id=2)
    assert reply.code == batch.code == ResponseCode.SUCCESS
    assert "expired" in reply.remark
    assert isinstance(reply.header, type(first))
    expected = msgspec.structs.replace(first, queue_id=3, queue_offset=-1)
    assert reply.header == expected
    assert batch_answer(batch)[1:] == (2, -1)
    assert world.broker.store.max_log_offset == end


def test_what_a_power_cut_took_is_stored_again(world: DeliveryWorld) -> None:
    first = world.send("orders", UNIQ_KEY="U1")
    second = world.send("orders", UNIQ_KEY="U2")
    world.flush()
    world.disk = world.disk.killed()
    lose_log_from(world, int(second.msg_id[-16:], 16))
    world.start()
    assert world.send("orders", UNIQ_KEY="U1") == first
    assert world.send("orders", b"again", UNIQ_KEY="U2").queue_offset == second.queue_offset
    assert stored(world) == [b"body", b"again"]


def test_all_windows_together_stay_within_bounds_and_the_largest_gives_way() -> None:
    with dedup_world() as world:
        world.broker.traffic.dedup = Dedup(most_ids=1_500)
        world.broker.topics.put(dedup_topic("few"))
        for number in range(100):
            world.send("few", UNIQ_KEY=f"U{number}")
        batch = [(f"U{number}", b"") for number in range(500)]
        for turn in range(6):
            send_batch(world, *[(f"{turn}{name}", body) for name, body in batch])
        windows = world.broker.traffic.dedup.windows
        assert len(windows["few"]) == 100
        assert sum(map(len, windows.values())) <= 1_500
        assert windows["few"].cut == 0
        assert windows["orders"].cut >= 1_600


def test_ids_of_any_length_are_distinguished(world: DeliveryWorld) -> None:
    keys = ["k" * length for length in (1, 63, 64, 65, 200, 5_000, 5_001)] + ["é" * 3_000, " "]
    for _ in range(2):
        for key in keys:
            world.send("orders", DEDUP_KEY=key)
        forget(world)
    assert len(stored(world)) == len(keys)
