"""A send is acknowledged when it is as safe as the flush mode promises, and never before."""

from collections.abc import Iterator

import pytest

from sparrowmq.broker.config import Flush
from sparrowmq.broker.durability import CROWD, GATHER_S, GROUP
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.store.errors import StoreError
from sparrowmq.testing.simulation import Simulation
from tests.broker.durability_world import Bench
from tests.broker.world import world_with


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with Simulation(seed=1) as sim:
        yield sim


def test_an_asynchronous_send_is_answered_at_once(sim: Simulation) -> None:
    bench = Bench(sim, Flush.ASYNC)
    assert bench.send().code == ResponseCode.SUCCESS


def test_asynchronous_sends_are_synced_by_the_interval(sim: Simulation) -> None:
    bench = Bench(sim, Flush.ASYNC)
    bench.send()
    sim.advance(0.4)
    assert len(bench.syncs) == 0
    sim.advance(0.2)
    assert len(bench.syncs) == 1


def test_a_synchronous_send_is_answered_when_its_sync_is_over(sim: Simulation) -> None:
    bench = Bench(sim, Flush.SYNC)
    send = bench.send()
    bench.settle()
    assert send.code is None
    bench.syncs[0].set_result(None)
    bench.settle()
    assert send.code == ResponseCode.SUCCESS


def test_sends_that_come_during_a_sync_share_the_next_one(sim: Simulation) -> None:
    bench = Bench(sim, Flush.SYNC)
    first = bench.send()
    bench.settle()
    later = [bench.send() for _ in range(10)]
    bench.syncs[0].set_result(None)
    bench.settle()
    assert first.code == ResponseCode.SUCCESS
    assert [send.code for send in later] == [None] * 10
    assert len(bench.syncs) == 2
    bench.syncs[1].set_result(None)
    bench.settle()
    assert [send.code for send in later] == [ResponseCode.SUCCESS] * 10
    assert len(bench.syncs) == 2


def test_a_send_that_arrives_during_a_sync_waits_for_the_next_one(
    sim: Simulation,
) -> None:
    """As when a master hands over, or a slave is retired."""
    bench = Bench(sim, Flush.SYNC)
    bench.send(is_oneway=True)
    making = sim.host("broker").start(bench.durability.make_durable())
    bench.settle()
    send = bench.send()
    bench.settle()
    assert (len(bench.syncs), making.done(), send.code) == (1, False, None)
    bench.end_sync()
    assert (len(bench.syncs), making.done(), send.code) == (2, True, None)
    bench.end_sync()
    assert send.code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("properties", "at_once"),
    [
        ("", False),
        ("WAIT\x01true\x02", False),
        ("WAIT\x01false\x02", True),
        ("a\x01b\x02WAIT\x01false", True),
        ("NOWAIT\x01false\x02", False),
        ("WAIT\x01falsely\x02", False),
    ],
)
def test_a_send_waits_unless_its_message_opts_out(
    sim: Simulation, properties: str, at_once: bool
) -> None:
    assert Bench(sim, Flush.SYNC).answers_at_once(properties) is at_once
    assert Bench(sim, Flush.ASYNC).answers_at_once(properties)


def test_a_one_way_send_does_not_wait(sim: Simulation) -> None:
    bench = Bench(sim, Flush.SYNC)
    assert bench.send(is_oneway=True).code == ResponseCode.SUCCESS


def test_a_sync_that_takes_too_long_is_answered_once_as_a_flush_timeout(sim: Simulation) -> None:
    bench = Bench(sim, Flush.SYNC)
    first = bench.send()
    sim.advance(3)
    second = bench.send()
    sim.advance(2.1)
    assert (first.code, second.code) == (ResponseCode.FLUSH_DISK_TIMEOUT, None)
    sim.advance(3)
    assert second.code == ResponseCode.FLUSH_DISK_TIMEOUT
    bench.syncs[0].set_result(None)
    bench.settle()
    assert len(first.answers) == len(second.answers) == 1


def test_the_age_of_the_oldest_wait_is_reported(sim: Simulation) -> None:
    bench = Bench(sim, Flush.SYNC)
    assert bench.durability.oldest_wait_s == 0
    bench.send()
    sim.advance(2)
    assert bench.durability.oldest_wait_s == pytest.approx(2)


def test_one_of_many_senders_waits_for_a_group(sim: Simulation) -> None:
    bench = Bench(sim, Flush.SYNC)
    bench.answer_crowd()
    before = len(bench.syncs)
    for _ in range(GROUP - 1):
        bench.send()
    bench.settle()
    assert len(bench.syncs) == before
    bench.send()
    bench.settle()
    assert len(bench.syncs) == before + 1


def test_a_group_that_stays_small_waits_a_millisecond(sim: Simulation) -> None:
    bench = Bench(sim, Flush.SYNC)
    bench.answer_crowd()
    before = len(bench.syncs)
    send = bench.send()
    sim.advance(GATHER_S / 2)
    assert len(bench.syncs) == before
    sim.advance(GATHER_S)
    assert len(bench.syncs) == before + 1
    bench.end_sync()
    assert send.code == ResponseCode.SUCCESS


def test_few_senders_do_not_wait_for_a_group(sim: Simulation) -> None:
    bench = Bench(sim, Flush.SYNC)
    bench.answer_crowd(CROWD - 1)
    before = len(bench.syncs)
    bench.send()
    bench.settle()
    assert len(bench.syncs) == before + 1


def test_a_crowd_that_left_is_forgotten(sim: Simulation) -> None:
    bench = Bench(sim, Flush.SYNC)
    bench.answer_crowd()
    sim.advance(0.6)
    if not bench.syncs[-1].done():
        bench.end_sync()  # of the marks, by the interval
    before = len(bench.syncs)
    bench.send()
    bench.settle()
    assert len(bench.syncs) == before + 1


def test_a_body_is_not_kept_while_its_send_waits(sim: Simulation) -> None:
    bench = Bench(sim, Flush.SYNC)
    assert bench.send().body == b""


def test_a_short_stall_of_the_disk_is_waited_for(sim: Simulation) -> None:
    bench = Bench(sim, Flush.SYNC)
    broker = bench.watch_lag()
    bench.send()
    sim.advance(2.4)
    assert not broker.busy_reason


def test_a_long_stall_refuses_sends_until_the_very_moment_the_disk_is_back(
    sim: Simulation,
) -> None:
    bench = Bench(sim, Flush.SYNC)
    broker = bench.watch_lag()
    send = bench.send()
    sim.advance(2.7)
    assert broker.busy_reason.startswith("the disk is slow: sends wait 2.")
    bench.end_sync()
    assert (send.code, broker.busy_reason) == (ResponseCode.SUCCESS, "")


def test_a_failed_sync_ends_acknowledgements_and_the_broker(sim: Simulation) -> None:
    bench = Bench(sim, Flush.SYNC)
    send = bench.send()
    bench.settle()
    bench.syncs[0].set_exception(OSError(5, "Input/output error"))
    with pytest.raises(StoreError, match="fsync failed"):
        sim.wait(bench.task)
    assert send.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert bench.store.has_failed


def test_a_synchronous_broker_answers_through_the_wire() -> None:
    with world_with(flush=Flush.SYNC) as world:
        world.send("orders", b"1", b"2")
        store = world.broker.store
        assert store.durable_log_offset == store.max_log_offset
