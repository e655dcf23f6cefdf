"""Acknowledged messages survive any storm, in order; and every storm is reproducible."""

import os
import random
import subprocess
import sys

import pytest

from sparrowmq.broker.config import Flush
from sparrowmq.testing.sim_cluster import RunningCluster
from tests.sim.storms import NETWORK, POWER, PROCESS, cut_the_power, group_faults, run_storm


def test_nothing_acknowledged_is_lost_in_a_network_storm(seed: int) -> None:
    ledger, queues, _ = run_storm(seed, NETWORK, brokers=2)
    assert ledger.ok_count > 50
    assert group_faults(ledger, queues) == []


@pytest.mark.parametrize("flush", list(Flush))
def test_nothing_acknowledged_is_lost_when_brokers_are_killed(seed: int, flush: Flush) -> None:
    ledger, queues, _ = run_storm(seed, NETWORK + PROCESS * 3, flush=flush)
    assert ledger.ok_count > 50
    assert group_faults(ledger, queues) == []


def test_nothing_acknowledged_is_lost_in_power_cuts_with_synchronous_flush(seed: int) -> None:
    ledger, queues, _ = run_storm(seed, NETWORK + POWER * 3, flush=Flush.SYNC)
    assert ledger.ok_count > 50
    assert group_faults(ledger, queues) == []


def test_asynchronous_flush_loses_only_the_last_half_second_before_a_power_cut(
    seed: int,
) -> None:
    cuts_s: list[float] = []

    def cut(rng: random.Random, sim: RunningCluster) -> None:
        cuts_s.append(sim.now_s)
        cut_the_power(rng, sim)

    ledger, queues, _ = run_storm(seed, [cut], flush=Flush.ASYNC)
    held = {body for bodies in queues.values() for body in bodies}
    for body, acknowledged_s in ledger.acknowledged_s.items():
        if body not in held:
            assert any(0 <= cut_s - acknowledged_s <= 0.5 for cut_s in cuts_s)


def test_the_check_notices_messages_that_asynchronous_flush_loses_in_power_cuts() -> None:
    storms = (run_storm(seed, POWER, flush=Flush.ASYNC) for seed in range(10))
    found = (fault for ledger, queues, _ in storms for fault in group_faults(ledger, queues))
    assert any(fault.startswith("lost") for fault in found)


def test_the_check_notices_swapped_and_invented_messages() -> None:
    ledger, queues, _ = run_storm(0, NETWORK)
    for held in queues.values():
        held.reverse()
    queues["broker-a", 0].append(b"invented")
    found = group_faults(ledger, queues)
    assert any(fault.startswith("out of order") for fault in found)
    assert [fault for fault in found if fault.startswith("never sent")] == [
        "never sent: b'invented' in broker-a queue 0"
    ]


def test_a_storm_repeats_itself_from_its_seed() -> None:
    everything = NETWORK + PROCESS + POWER
    assert run_storm(3, everything, brokers=2) == run_storm(3, everything, brokers=2)


@pytest.mark.slow
@pytest.mark.parametrize("faults", ["NETWORK + KILL + POWER", "PROCESS"])
def test_a_storm_repeats_itself_in_another_process_with_other_hashes(faults: str) -> None:
    code = f"from tests.sim.storms import *; print(run_storm(5, {faults}, brokers=2)[2])"
    checksums = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hashes in ("1", "2")
    ]
    assert checksums[0] == checksums[1] != ""
