"""The watchdog finds exactly the callbacks that block a loop."""

import asyncio
import resource
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from sparrowmq.testing import LoopStalled, LoopWatchdog
from sparrowmq.testing.loop_watchdog import Stall
from tests.faults.abused_broker import HEARTBEAT, heartbeat
from tests.faults.broker_process import BrokerProcess
from tests.faults.raw_wire import RawClient


def _compute(ms: float = 80) -> None:
    until_s = time.thread_time() + ms / 1000
    while time.thread_time() < until_s:
        pass


def _block() -> None:
    time.sleep(0.08)


async def _call(function: Callable[[], None]) -> None:
    called = asyncio.get_running_loop().create_future()

    def call() -> None:
        function()
        called.set_result(None)

    asyncio.get_running_loop().call_soon(call)
    await called


@pytest.mark.parametrize("hold", [_compute, _block])
def test_a_callback_that_holds_the_loop_fails_the_block_with_its_stack(
    hold: Callable[[], None],
) -> None:
    async def watched() -> None:
        with LoopWatchdog():
            await _call(hold)

    with pytest.raises(LoopStalled) as found:
        asyncio.run(watched())
    (stall,) = found.value.stalls
    assert stall.own_ms >= 50
    assert stall.stack[-1].endswith(f" {hold.__qualname__}"), stall
    assert hold.__qualname__ in str(found.value)


def test_computing_and_blocking_are_distinguished() -> None:
    async def watched() -> list[Stall]:
        with LoopWatchdog(report=lambda stall: None) as watchdog:
            await _call(_compute)
            await _call(_block)
        return watchdog.stalls

    computing, blocking = asyncio.run(watched())
    assert computing.cpu_ms >= 80 > 40 > blocking.cpu_ms


def test_a_block_without_an_await_is_watched_as_well() -> None:
    async def watched() -> None:
        with LoopWatchdog():
            _compute()

    with pytest.raises(LoopStalled, match="the callback that opened the block"):
        asyncio.run(watched())


def test_many_short_callbacks_in_one_turn_are_no_stall() -> None:
    async def watched() -> None:
        with LoopWatchdog():
            await asyncio.gather(*(_call(lambda: _compute(5)) for _ in range(20)))

    asyncio.run(watched())


def test_time_that_the_machine_gave_to_others_is_not_ours() -> None:
    async def watched() -> float:
        with LoopWatchdog(schedule=lambda: (0, time.perf_counter_ns())) as watchdog:
            await _call(_compute)
        return watchdog.longest_ms

    assert asyncio.run(watched()) >= 80


def test_a_callback_in_which_the_process_was_stopped_is_forgiven() -> None:
    async def watched() -> None:
        with LoopWatchdog() as watchdog:

            def stopped() -> None:
                _compute()
                watchdog.forgive()

            await _call(stopped)

    asyncio.run(watched())


def test_a_failing_block_raises_its_own_error() -> None:
    async def watched() -> None:
        with LoopWatchdog():
            await _call(_compute)
            raise ValueError("of the block")

    with pytest.raises(ValueError, match="of the block"):
        asyncio.run(watched())


def test_a_broker_process_writes_its_stalls_to_a_file(tmp_path: Path) -> None:
    stalls = tmp_path / "stalls"
    # Opening its store takes a broker longer than that, in one callback.
    broker = BrokerProcess(tmp_path / "data", stalls=stalls, stall_ms=1)
    assert broker.stop() == 0
    found = [msgspec.json.decode(line, type=Stall) for line in stalls.read_bytes().splitlines()]
    assert any("BrokerServer.running" in place for stall in found for place in stall.stack)


def test_a_broker_that_can_open_no_file_serves_on_and_writes_its_stalls(tmp_path: Path) -> None:
    stalls = tmp_path / "stalls"
    broker = BrokerProcess(tmp_path / "data", stalls=stalls, stall_ms=1)
    try:
        with RawClient(broker.port) as client:
            client.call(HEARTBEAT, {}, heartbeat("small", ["g"]))  # until then nothing accepted it
            before = len(stalls.read_bytes())
            soft, hard = resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (3, hard))
            # Reading this takes a broker longer than 1 ms.
            head, _ = client.call(HEARTBEAT, {}, heartbeat("huge", [f"g{n}" for n in range(2_000)]))
            assert head.code == 0, head.remark
            head, _ = client.call(HEARTBEAT, {}, heartbeat("small", ["g"]))
            assert head.code == 0, head.remark
            resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
        assert len(stalls.read_bytes()) > before
        assert broker.stop() == 0
    finally:
        broker.kill()
