"""A task group for things that are started and stopped, not entered and left.

A TaskGroup must be left by the task that entered it. Users start and stop clients from wherever
they like, so one root task owns the group in between.
"""

import asyncio


class TaskOwner:
    """Owns the tasks of one started thing. `stop` cancels what still runs and waits for it."""

    def __init__(self) -> None:
        self._root: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def tasks(self) -> asyncio.TaskGroup:
        """The group, while started."""
        assert self._tasks is not None, "start() first"
        return self._tasks

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._root is not None

    @property
    def is_over(self) -> bool:
        """Whether it was stopped, which is for good."""
        return self._stopping.is_set()

    async def start(self) -> None:
        """Open the group."""
        ready = asyncio.Event()
        # The one task without a group: it is the group.
        root = self._own(ready)
        self._root = asyncio.create_task(root, name="task owner")  # noqa: TID251  # see above
        try:
            await ready.wait()
        except BaseException:
            await self.stop()
            raise

    async def _own(self, ready: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            self._tasks = group
            watch = group.create_task(self._stopping.wait(), name="stop signal")
            ready.set()
            await watch
            # Children see a cancellation, the group ends, and `stop` returns.
            raise _Stopped

    async def stop(self) -> None:
        """Cancel and await every task. Raises the first failure of a task, if one failed."""
        if self._root is None:
            return
        self._stopping.set()
        root, self._root = self._root, None
        try:
            await root
        except* _Stopped:
            pass


def is_asked_to_end() -> bool:
    """Whether a CancelledError is meant for this task, and not what something it called raised."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


class _Stopped(Exception):
    """Ends the group from inside."""
