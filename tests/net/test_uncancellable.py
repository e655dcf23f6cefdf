"""Uncancellable steps: a running one completes before its task ends, and no other starts."""

import asyncio

import pytest

from sparrowmq.net.tasks import Uncancellable, running


class Savers:
    """A save that takes a while, one that would follow it, and a loop that fails meanwhile."""

    def __init__(self) -> None:
        self.uncancellable = Uncancellable()
        self.under_way = asyncio.Event()
        self.failed = asyncio.Event()
        self.seen: list[str] = []

    async def save_slowly(self) -> None:
        async with self.uncancellable:
            self.under_way.set()
            await self.failed.wait()
            for _ in range(20):  # turns of the loop in which it could be cancelled
                await asyncio.sleep(0)
            self.seen.append("saved")

    async def save_next(self) -> None:
        await self.failed.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        async with self.uncancellable:
            self.seen.append("began another")

    async def fail(self) -> None:
        await self.under_way.wait()
        self.failed.set()
        raise OSError(5, "broken")


@pytest.mark.parametrize("is_one_of_them", [True, False])
def test_a_running_save_completes_when_another_task_fails(is_one_of_them: bool) -> None:
    seen: list[str] = []

    async def scenario() -> None:
        savers = Savers()
        savers.seen = seen
        loops = [savers.save_slowly, savers.save_next]
        async with asyncio.TaskGroup() as tasks:
            if is_one_of_them:
                loops.append(savers.fail)
            else:
                tasks.create_task(savers.fail())
            async with running(loops, savers.uncancellable):
                await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(scenario())
    assert caught.group_contains(OSError, match="broken")
    assert seen == ["saved"]
