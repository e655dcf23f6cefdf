"""Delayed messages and transactions of a running broker that is killed over and over."""

import random
from dataclasses import dataclass, field

import pytest

from sparrowmq.broker.delivery import delay_levels, delivery, timer_delivery
from sparrowmq.broker.delivery.delay_levels import DelayLevels
from sparrowmq.broker.delivery.half_messages import records
from sparrowmq.broker.delivery.timer_files import RunFiles, RunList, TimerCheck
from sparrowmq.broker.delivery.timer_index import TimerIndex
from sparrowmq.disk.disk import Disk
from sparrowmq.net.errors import ConnectionLost
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.delay import RETRY_DELAYS_MS
from sparrowmq.protocol.headers.transactions import EndTransaction
from sparrowmq.protocol.ids import OffsetId
from sparrowmq.protocol.sys_flag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from sparrowmq.store.store import Store
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster


@dataclass
class Promises:
    """What the broker acknowledged."""

    due_ms: dict[bytes, int] = field(default_factory=dict)
    ended: dict[bytes, int] = field(default_factory=dict)


def send_some(sim: RunningCluster, rng: random.Random, said: Promises, cycle: int) -> None:
    for number in range(4):
        body = b"%d level %d" % (cycle, number)
        level = rng.randint(1, 2)
        sent_ms = sim.clock()
        sim.wait(sim.client.send("orders", body, DELAY=str(level)))
        said.due_ms[body] = sent_ms + RETRY_DELAYS_MS[level - 1]
        body = b"%d timer %d" % (cycle, number)
        due_ms = sim.clock() + rng.randint(10, 6_000)
        sim.wait(sim.client.send("orders", body, TIMER_DELIVER_MS=str(due_ms)))
        said.due_ms[body] = due_ms
        body = b"%d transaction %d" % (cycle, number)
        end_one(sim, said, body, TRANSACTION_COMMIT if number % 2 else TRANSACTION_ROLLBACK)


def end_one(sim: RunningCluster, said: Promises, body: bytes, kind: int) -> None:
    sent = sim.wait(sim.client.send("orders", body, TRAN_MSG="true", PGROUP="test"))
    header = EndTransaction(
        producer_group="test",
        tran_state_table_offset=sent.queue_offset,
        commit_log_offset=OffsetId.parse(sent.msg_id).log_offset,
        commit_or_rollback=kind,
    )
    try:
        code = sim.wait(sim.client.call(header)).code
    except ConnectionLost:
        return
    assert code == ResponseCode.SUCCESS
    said.ended[body] = kind


def run_with_kills(seed: int, kills: int) -> tuple[Promises, list[tuple[bytes, int]]]:
    """What was promised, and every delivery: body and time."""
    rng = random.Random(seed)
    said = Promises()
    with SimCluster(seed=seed).run() as sim:
        for cycle in range(kills):
            send_some(sim, rng, said, cycle)
            sim.advance(rng.random() * 2)
            sim.brokers["broker-a"].kill()
            sim.advance(rng.random())
            sim.brokers["broker-a"].start()
        sim.advance(15)
        found = records(sim.broker.store, "orders", 0)
        return said, [(record.body, record.store_timestamp) for record in found]


def group_faults(said: Promises, delivered: list[tuple[bytes, int]]) -> list[str]:
    times: dict[bytes, list[int]] = {}
    for body, time_ms in delivered:
        times.setdefault(body, []).append(time_ms)
    faults = [f"lost: {body!r}" for body in said.due_ms if body not in times]
    faults += [
        f"early: {body!r}"
        for body, due_ms in said.due_ms.items()
        if min(times.get(body, [due_ms])) < due_ms
    ]
    for body, kind in said.ended.items():
        if (kind == TRANSACTION_COMMIT) != (body in times):
            faults.append(f"ended otherwise: {body!r}")
    faults += [f"repeated: {body!r}" for body, found in times.items() if len(found) > 1]
    return faults


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_kills_lose_nothing_deliver_nothing_early_and_repeat_nothing(seed: int) -> None:
    said, delivered = run_with_kills(seed, kills=8)
    assert len(said.due_ms) == 64
    assert len(said.ended) == 32
    assert group_faults(said, delivered) == []


def test_the_check_notices_messages_that_come_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DelayLevels, "due_ms", lambda *_: 0)
    assert any(fault.startswith("early") for fault in group_faults(*run_with_kills(0, kills=2)))


@pytest.mark.parametrize("what", ["level", "timer"])
def test_the_check_notices_a_repeated_delivery(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    module = {"level": delay_levels, "timer": timer_delivery}[what]
    monkeypatch.setattr(module, "was_delivered_before", lambda *_: False)
    faults = group_faults(*run_with_kills(0, kills=8))
    assert faults
    assert all("repeated" in fault and what in fault for fault in faults)


def test_the_check_notices_timers_that_are_forgotten_at_a_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forget(disk: Disk, store: Store) -> TimerIndex:
        return TimerIndex(RunFiles(disk), TimerCheck(disk), (), RunList())

    monkeypatch.setattr(delivery, "recover_timers", forget)
    assert any(fault.startswith("lost") for fault in group_faults(*run_with_kills(0, kills=2)))


def test_the_check_notices_rolled_back_messages_that_are_delivered() -> None:
    said, delivered = run_with_kills(0, kills=1)
    rolled_back = next(body for body, kind in said.ended.items() if kind == TRANSACTION_ROLLBACK)
    assert group_faults(said, [*delivered, (rolled_back, 0)]) == [
        f"ended otherwise: {rolled_back!r}"
    ]
