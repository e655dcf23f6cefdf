"""The virtual loop: time jumps, order is stable, and a wait that cannot end fails at once."""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress

import pytest

from sparrowmq.testing.errors import Deadlock, Spinning, TimeLimitReached, UnhandledError
from sparrowmq.testing.process import PROCESS, Process
from sparrowmq.testing.virtual_time import VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


def test_sleeping_for_hours_takes_no_time(loop: VirtualLoop) -> None:
    loop.run_until_complete(asyncio.sleep(48 * 3600))
    assert loop.time() == 48 * 3600


def test_timers_run_in_the_order_of_their_time_and_then_of_their_setting(
    loop: VirtualLoop,
) -> None:
    order: list[str] = []
    for number in range(50):
        loop.call_at(2.0, order.append, f"second {number}")
    for number in range(50):
        loop.call_at(1.0, order.append, f"first {number}")
    loop.advance(3)
    assert order == [f"first {n}" for n in range(50)] + [f"second {n}" for n in range(50)]


def test_timers_never_run_early(loop: VirtualLoop) -> None:
    late: list[float] = []

    def fire(due: float) -> None:
        late.append(loop.time() - due)

    for step in range(1, 1000):
        loop.call_at(step * 0.1, fire, step * 0.1)
    loop.advance(1000)
    assert late == [0.0] * 999


def test_timers_work_after_years(loop: VirtualLoop) -> None:
    loop.run_until_complete(asyncio.sleep(100 * 365 * 86400))
    loop.run_until_complete(asyncio.sleep(0.001))
    assert loop.time() > 100 * 365 * 86400


def test_advancing_stops_exactly_there(loop: VirtualLoop) -> None:
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            ticks.append(loop.time())

    task = loop.create_task(tick())
    loop.advance(2.5)
    assert (ticks, loop.time()) == ([1, 2], 2.5)
    loop.advance(1)
    assert (ticks, loop.time()) == ([1, 2, 3], 3.5)
    task.cancel()


def test_a_condition_stops_the_loop_before_anything_else_runs(loop: VirtualLoop) -> None:
    numbers: list[int] = []

    async def count() -> None:
        for number in range(100):
            numbers.append(number)
            await asyncio.sleep(0)

    loop.create_task(count())
    loop.run_until(lambda: len(numbers) == 10)
    assert numbers == list(range(10))


def test_a_wait_that_nothing_can_end_is_a_deadlock_that_lists_the_waiting_tasks(
    loop: VirtualLoop,
) -> None:
    async def wait_for_nobody() -> None:
        await asyncio.Event().wait()

    task = loop.create_task(wait_for_nobody(), name="the lonely one")
    with pytest.raises(Deadlock) as caught:
        loop.run_until_complete(task)
    assert "the lonely one" in str(caught.value)
    assert "wait_for_nobody" in str(caught.value)
    assert "await asyncio.Event().wait()" in str(caught.value)


def test_a_wait_past_the_limit_is_reported_although_timers_keep_running() -> None:
    loop = VirtualLoop(limit_s=100)

    async def tick() -> None:
        for _ in range(1000):
            await asyncio.sleep(1)

    loop.create_task(tick(), name="ticker")
    with pytest.raises(TimeLimitReached, match="ticker"):
        loop.run_until_complete(asyncio.Event().wait())
    assert loop.time() == 100
    loop.close()


def test_callbacks_without_end_are_reported(loop: VirtualLoop) -> None:
    async def spin() -> None:
        for _ in range(1_000_000):
            await asyncio.sleep(0)

    with pytest.raises(Spinning, match="spin"):
        loop.run_until_complete(spin())


def test_timeouts_end_waits_at_their_time(loop: VirtualLoop) -> None:
    async def wait_at_most(seconds: float) -> float:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.Event().wait()
        return loop.time()

    assert loop.run_until_complete(wait_at_most(15)) == 15
    with pytest.raises(TimeoutError):
        loop.run_until_complete(asyncio.wait_for(asyncio.sleep(10), 1))
    assert loop.time() == 16


def test_cancellation_runs_cleanup_and_reaches_the_waiter(loop: VirtualLoop) -> None:
    steps: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1)
            steps.append(f"cleaned up at {loop.time()}")

    async def cancel_it() -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work())
            await asyncio.sleep(5)
            task.cancel()
        assert task.cancelled()

    loop.run_until_complete(cancel_it())
    assert steps == ["cleaned up at 6.0"]


def test_a_failure_in_a_task_group_cancels_its_tasks_in_the_order_they_were_started(
    loop: VirtualLoop,
) -> None:
    ended: list[int] = []

    async def wait(number: int) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ended.append(number)

    async def fail() -> None:
        raise LookupError("the reason")

    async def group_of_many() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(200):
                group.create_task(wait(number))
            group.create_task(fail())

    with pytest.raises(ExceptionGroup) as caught:
        loop.run_until_complete(group_of_many())
    assert caught.group_contains(LookupError)
    assert len(ended) == 200
    again = VirtualLoop()
    first, ended = ended, []
    with pytest.raises(ExceptionGroup):
        again.run_until_complete(group_of_many())
    again.close()
    assert ended == first


def test_a_failing_callback_fails_the_run(loop: VirtualLoop) -> None:
    loop.call_later(1, dict[str, str]().__getitem__, "missing")
    with pytest.raises(UnhandledError) as caught:
        loop.advance(2)
    assert isinstance(caught.value.__cause__, KeyError)


def test_executors_run_inline_and_hand_over_errors(loop: VirtualLoop) -> None:
    async def use_them() -> None:
        assert await loop.run_in_executor(None, divmod, 7, 2) == (3, 1)
        assert await asyncio.to_thread(len, "four") == 4
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, divmod, 1, 0)

    loop.run_until_complete(use_them())


def test_a_stopped_process_does_nothing_until_it_is_resumed_and_then_catches_up(
    loop: VirtualLoop,
) -> None:
    process = Process("worker")
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            ticks.append(loop.time())

    loop.create_task(tick(), context=process.context())
    loop.advance(2.5)
    process.stop()
    loop.advance(10)
    assert ticks == [1, 2]
    loop.resume(process)
    loop.advance(1.5)
    assert ticks == [1, 2, 12.5, 13.5]


def test_a_killed_process_runs_no_more_code_not_even_its_cleanup() -> None:
    loop = VirtualLoop()
    process = Process("victim")
    steps: list[str] = []

    async def child() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            steps.append("cleaning up")
            await asyncio.sleep(1)

    async def main() -> None:
        assert PROCESS.get() is process
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(child())

    task = loop.create_task(main(), context=process.context())
    loop.advance(0.5)
    loop.kill(process)
    loop.advance(100)
    assert not task.done()
    assert steps == []
    loop.close()
    del task
    gc.collect()  # complaints about coroutines left behind are errors


def test_a_killed_process_whose_cleanup_never_ends_raises_no_error() -> None:
    loop = VirtualLoop()
    process = Process("victim")

    async def main() -> None:
        never = asyncio.Event()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(never.wait)
            stack.push_async_callback(asyncio.sleep, 0)
            stack.push_async_callback(never.wait)
            await never.wait()

    loop.create_task(main(), context=process.context())
    loop.advance(1)
    loop.kill(process)
    loop.close()
    gc.collect()


def test_closing_cancels_running_tasks() -> None:
    loop = VirtualLoop()
    ended: list[str] = []

    async def serve() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(10)
            ended.append("gracefully")

    loop.create_task(serve())
    loop.advance(1)
    loop.close()
    assert ended == ["gracefully"]
    assert loop.is_closed()
