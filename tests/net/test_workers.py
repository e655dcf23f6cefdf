"""Workers run blocking functions in threads, or inline in deterministic tests."""

import asyncio
import concurrent.futures
import threading

import pytest

from sparrowmq.net.workers import InlineWorkers, ThreadWorkers, Workers, WorkersClosed


def make(kind: str) -> Workers:
    return ThreadWorkers(2, "test") if kind == "threads" else InlineWorkers()


@pytest.mark.parametrize("kind", ["threads", "inline"])
def test_a_function_s_result_and_its_error_come_back(kind: str) -> None:
    async def work() -> int:
        workers = make(kind)
        with pytest.raises(ZeroDivisionError):
            await workers.run(divmod, 1, 0)
        text = await workers.run(int, "ff", base=16)
        workers.close()
        return text

    assert asyncio.run(work()) == 255


def test_threads_leave_the_loop_free_and_inline_workers_do_not_leave_it() -> None:
    async def who(workers: Workers) -> bool:
        thread = await workers.run(threading.current_thread)
        workers.close()
        return thread is threading.current_thread()

    assert asyncio.run(who(make("inline")))
    assert not asyncio.run(who(make("threads")))


def test_closing_lets_running_functions_finish() -> None:
    async def work() -> str:
        workers = make("threads")
        started, may_end = threading.Event(), threading.Event()

        def wait() -> str:
            started.set()
            may_end.wait()
            return "finished"

        running = asyncio.gather(workers.run(wait))
        await asyncio.get_running_loop().run_in_executor(None, started.wait)
        may_end.set()
        workers.close()
        return (await running)[0]

    assert asyncio.run(work()) == "finished"


@pytest.mark.parametrize(
    "kind",
    [
        StopIteration,
        SystemExit,
        KeyboardInterrupt,
        GeneratorExit,
        asyncio.CancelledError,
        concurrent.futures.CancelledError,
    ],
)
def test_what_a_function_raises_ends_neither_the_loop_nor_the_wait(
    kind: type[BaseException],
) -> None:
    def fail() -> None:
        raise kind

    async def work() -> str:
        workers = make("threads")
        with pytest.raises(RuntimeError, match=kind.__name__) as raised:
            await workers.run(fail)
        workers.close()
        return type(raised.value.__cause__).__name__

    assert asyncio.run(work()) == kind.__name__


def test_using_closed_workers_raises() -> None:
    async def work() -> None:
        workers = make("threads")
        workers.close()
        with pytest.raises(WorkersClosed):
            await workers.run(int)

    asyncio.run(work())
