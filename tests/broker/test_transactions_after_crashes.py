"""Transactions after kills, power cuts and a full disk: an acknowledged end stays valid."""

import random
from collections.abc import Iterator

import pytest

from sparrowmq.broker.delivery.half_messages import TRANSACTION_GROUP
from sparrowmq.broker.delivery.transactions import commit_progress
from sparrowmq.disk.errors import DiskFull
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.message_ext import decode_messages
from sparrowmq.protocol.names import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from sparrowmq.protocol.sys_flag import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_ROLLBACK
from sparrowmq.store.messages import PutMessage, Stored
from sparrowmq.testing.recorded_calls import PowerCut
from tests.broker.crashes import crashed_worlds
from tests.broker.delivery_world import DeliveryWorld, orders_world
from tests.broker.transaction_world import answer, bodies, end, half, producer
from tests.seeds import CRASH_STEPS


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with orders_world() as world:
        yield world


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

    world.broker.store.append = append_or_full
    assert end(world, sent, TRANSACTION_COMMIT).code == ResponseCode.SUCCESS
    assert end(world, sent, TRANSACTION_COMMIT).code == ResponseCode.SUCCESS
    assert bodies(world) == [b"an order"]
    assert halves.progress(9, 9)[0] == 0, "a restart would have to look at it"
    with pytest.raises(DiskFull):
        world.deliver()
    world.broker.store.append = original_append
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

    world.broker.store.append = append_and_die
    with pytest.raises(PowerCut):
        world.deliver()
    world.kill()
    assert [one.checks for one in world.broker.delivery.halves] == [1]


def test_offsets_are_committed_only_after_their_messages_are_durable() -> None:
    for seed in range(20):
        with orders_world() as world:
            producer(world)
            half(world)
            world.flush()
            world.now_ms += 6_000
            world.deliver()
            for _ in range(2):
                commit_progress(world.broker)
            world.run(
                world.broker.tables.offsets.journal(
                    world.broker.offsets, InlineWorkers(), world.broker.slices
                )
            )
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


def _some_transactions(world: DeliveryWorld, said: dict[bytes, int]) -> None:
    peer = producer(world)
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


@pytest.mark.parametrize("step", CRASH_STEPS)
@pytest.mark.parametrize("power", [False, True])
def test_a_crash_in_any_disk_call_loses_no_commit_and_delivers_no_rolled_back_message(
    power: bool, step: int
) -> None:
    worlds = crashed_worlds(_some_transactions, power=power, step=step, least=50)
    for world, said, call in worlds:
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


def test_a_restart_reads_from_the_first_transaction_that_has_not_ended(
    world: DeliveryWorld,
) -> None:
    def progress(topic: str) -> int:
        return world.broker.offsets.get(TRANSACTION_GROUP, topic, 0)

    first, second = half(world), half(world)
    end(world, second, TRANSACTION_COMMIT)
    world.deliver()
    world.save()
    assert progress(TRANS_HALF_TOPIC) == 0
    end(world, first, TRANSACTION_COMMIT)
    world.deliver()
    world.save()
    world.kill()
    assert progress(TRANS_HALF_TOPIC) == 2
    assert progress(TRANS_OP_HALF_TOPIC) == world.broker.store.max_offset(TRANS_OP_HALF_TOPIC, 0)
