"""An overloaded broker serves what it can, refuses the rest, and recovers afterwards."""

from pathlib import Path

import pytest

from tests.faults.broker_process import BrokerProcess
from tests.faults.honest_load import Answered, Kind, Phase
from tests.faults.overload import (
    OVERLOADS,
    OverloadResult,
    judge_times,
    overload_broker,
    recovery_s,
)
from tests.faults.raw_wire import SEND_MESSAGE_V2, RawClient, send_fields
from tests.faults.slow_disk import SyncDelay
from tests.faults.slow_disk_broker import PLANTED, delay_path
from tests.faults.watched_loops import too_long, watched
from tests.seeds import in_part

SLOW_DISK = "slow disk, synchronous flush"


@pytest.mark.parametrize("name", in_part(OVERLOADS, few=1))
def test_an_overloaded_broker_keeps_accepted_messages_and_keeps_serving(name: str) -> None:
    result = overload_broker(name, small=True)
    assert result, str(result)


@pytest.mark.slow
def test_a_planted_broker_that_syncs_in_its_loop_is_noticed() -> None:
    result = overload_broker(SLOW_DISK, small=True, is_planted=True)
    assert "waits for ever" in str(result)


@pytest.mark.slow
@pytest.mark.parametrize("planted", [(), (PLANTED,)], ids=["in a process", "in the loop"])
def test_a_sync_in_the_loop_of_a_watched_broker_is_a_stall(
    planted: tuple[str, ...], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    delay = SyncDelay(delay_path(data))
    module = "tests.faults.slow_disk_broker"
    with watched() as loops:
        broker = BrokerProcess(data, "--flush", "sync", *planted, module=module)
        try:
            with RawClient(broker.port) as client:
                delay.set(2_000)
                head, _ = client.call(SEND_MESSAGE_V2, send_fields("orders", 0, b""), b"x")
                delay.set(0)
            assert head.code == 0, head.remark
        finally:
            broker.stop()
    found = [stall for stall in loops.stalls if "slow_disk.py" in stall[1]]
    assert bool(too_long(found)) is bool(planted), loops.stalls


@pytest.mark.slow
def test_an_overload_runs_under_the_watchdog_and_keeps_accepted_messages() -> None:
    with watched() as loops:
        result = overload_broker("no descriptors", small=True, is_watched=True)
    assert result, f"{result}; {loops}"


@pytest.mark.parametrize(
    ("name", "busy", "problems"),
    [
        (SLOW_DISK, 0, ["no send was refused, so no busy answer was measured"]),
        ("no descriptors", 0, ["no send was refused, so no busy answer was measured"]),
        (SLOW_DISK, 1, []),
        ("slow disk, asynchronous flush", 0, []),
    ],
)
def test_times_of_busy_answers_that_never_came_do_not_count_as_met(
    name: str, busy: int, problems: list[str]
) -> None:
    result = OverloadResult(name, size=500, busy=busy)
    judge_times(OVERLOADS[name], result)
    assert result.problems == problems


@pytest.mark.parametrize(
    ("moments", "expected_s"),
    [
        ([at / 10 for at in range(40)], 0.0),
        ([2 + at / 10 for at in range(20)], 1.9),
        ([at / 4 for at in range(16)], 4.0),
    ],
    ids=["at once", "after a while", "never"],
)
def test_recovery_lasts_until_the_first_second_at_the_earlier_rate(
    moments: list[float], expected_s: float
) -> None:
    answers = [Answered(Kind.SEND, 0, at_s, 0.0) for at_s in moments]
    after = Phase(0.0, 4.0, answers)
    assert recovery_s(after, least_per_s=9.0) == pytest.approx(expected_s, abs=0.11)
