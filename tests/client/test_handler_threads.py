"""Threads for plain handlers: waited for at the end, unless a stop gave them up."""

import asyncio
import concurrent.futures
import gc
import threading
import weakref
from collections.abc import Callable

import pytest

from sparrowmq.client.handler_threads import HandlerThreads
from sparrowmq.net.workers import WorkersClosed
from tests.patience import PATIENCE_S


def test_a_function_s_result_and_its_error_come_back() -> None:
    async def work() -> int:
        threads = HandlerThreads(2, "test")
        with pytest.raises(ZeroDivisionError):
            await threads.run(divmod, 1, 0)
        number = await threads.run(int, "ff", base=16)
        threads.close()
        return number

    assert asyncio.run(work()) == 255


def test_as_many_functions_run_at_once_as_configured_and_no_more() -> None:
    together = threading.Barrier(3)

    async def work() -> set[str]:
        threads = HandlerThreads(3, "three")

        def meet() -> str:
            together.wait(timeout=PATIENCE_S)  # passes only when three are here
            return threading.current_thread().name

        names = await asyncio.gather(*(threads.run(meet) for _ in range(9)))
        threads.close()
        return set(names)

    assert asyncio.run(work()) == {"three_1", "three_2", "three_3"}


@pytest.mark.parametrize("end", [HandlerThreads.close, HandlerThreads.abandon])
def test_every_thread_ends_with_its_pool(end: Callable[[HandlerThreads], None]) -> None:
    together = threading.Barrier(3)

    async def work() -> list[threading.Thread]:
        threads = HandlerThreads(3, "three")

        def meet() -> threading.Thread:
            together.wait(timeout=PATIENCE_S)
            return threading.current_thread()

        met = await asyncio.gather(*(threads.run(meet) for _ in range(3)))
        end(threads)
        return met

    for thread in asyncio.run(work()):
        thread.join(timeout=PATIENCE_S)
        assert not thread.is_alive()


def test_is_here_is_true_only_in_its_own_threads() -> None:
    async def work() -> tuple[bool, bool]:
        threads = HandlerThreads(1, "test")
        inside = await threads.run(lambda: threads.is_here)
        threads.close()
        return threads.is_here, inside

    assert asyncio.run(work()) == (False, True)


@pytest.mark.parametrize(
    "kind", [StopIteration, SystemExit, KeyboardInterrupt, concurrent.futures.CancelledError]
)
def test_a_thread_survives_any_exception_of_its_function(kind: type[BaseException]) -> None:
    def fail() -> None:
        raise kind

    async def work() -> str:
        threads = HandlerThreads(1, "test")
        with pytest.raises(RuntimeError, match=kind.__name__):
            await threads.run(fail)
        name = await threads.run(lambda: threading.current_thread().name)
        threads.close()
        return name

    assert asyncio.run(work()) == "test_1"


def test_closing_waits_for_running_and_queued_functions() -> None:
    async def work() -> list[str]:
        threads = HandlerThreads(1, "test")
        may_end = threading.Event()
        done: list[str] = []

        def first() -> None:
            may_end.wait()
            done.append("first")

        running = asyncio.gather(threads.run(first), threads.run(done.append, "second"))
        await asyncio.sleep(0)
        closing = asyncio.get_running_loop().run_in_executor(None, threads.close)
        may_end.set()
        await closing
        at_once = list(done)
        await running
        with pytest.raises(WorkersClosed):
            await threads.run(int)
        return at_once

    assert asyncio.run(work()) == ["first", "second"]


def test_nothing_waits_for_abandoned_functions() -> None:
    may_end = threading.Event()

    async def work() -> None:
        threads = HandlerThreads(1, "test")
        running = asyncio.ensure_future(threads.run(may_end.wait))
        await asyncio.sleep(0)
        closing = asyncio.get_running_loop().run_in_executor(None, threads.close)
        threads.abandon()
        await closing  # a caller that waited already is released too
        with pytest.raises(WorkersClosed):
            await threads.run(int)
        may_end.set()
        assert await running

    asyncio.run(work())


def test_a_thread_ends_with_the_pool_that_was_forgotten() -> None:
    async def work() -> tuple[threading.Thread, "weakref.ref[HandlerThreads]"]:
        threads = HandlerThreads(1, "forgotten")
        return await threads.run(threading.current_thread), weakref.ref(threads)

    thread, pool = asyncio.run(work())
    gc.collect()
    thread.join(timeout=PATIENCE_S)
    assert not thread.is_alive()
    assert pool() is None
