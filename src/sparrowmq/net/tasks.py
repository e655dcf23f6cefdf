"""Ownership of tasks that run until they are stopped, and when they may be cancelled.

* `TaskOwner` owns the tasks of something that is started and stopped, such as a client. A TaskGroup
  must be left by the task that entered it; users start and stop clients from any task, so a root
  task owns the group in between.
* `running` runs the loops of a server while a block runs, in a separate group.
* `Uncancellable` marks steps that must not be cancelled halfway, such as saving a file in a worker
  thread. The thread continues when the task that awaits it is cancelled: the last save of a
  stopping broker would write the same file at the same time, and the changes that the step had
  taken over would never be saved.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, TypeAlias

Loop: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""What a server runs forever. A function, because a coroutine that is cancelled before its first
step would warn that it was never awaited."""


class Uncancellable:
    """`async with` surrounds a step; `end` waits for steps before their tasks are cancelled."""

    def __init__(self) -> None:
        self._steps = InProgress()
        self._is_over = False

    async def __aenter__(self) -> None:
        if self._is_over:
            await asyncio.get_running_loop().create_future()  # until it is cancelled
        self._steps.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._steps.__exit__(kind, error, trace)

    async def end(self) -> None:
        """Let no new step begin; return when none is running."""
        self._is_over = True
        await self._steps.until_none()


@asynccontextmanager
async def running(loops: Iterable[Loop], uncancellable: Uncancellable) -> AsyncIterator[None]:
    """Run these while the block runs. However it ends, no uncancellable step is cancelled.

    Raises what one of them raised, as a group.
    """
    # A separate group: in a shared one, the failure of another task would cancel them.
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_run(loop, uncancellable)) for loop in loops]
        try:
            yield
        finally:
            await uncancellable.end()
            for task in tasks:
                task.cancel()


async def _run(loop: Loop, uncancellable: Uncancellable) -> None:
    try:
        await loop()
    except Exception:
        await uncancellable.end()  # the group cancels all the others as soon as this continues
        raise


class TaskOwner:
    """Owns the tasks of one component. `stop` cancels those still running and waits for them."""

    def __init__(self, died: Callable[[BaseException], None] = lambda error: None) -> None:
        """`died` is called when the tasks end without `stop`, with the error that ended them."""
        self._died = died
        self._root: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        self._is_leaving_group = False

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
        """Whether it was stopped, which is permanent."""
        return self._stopping.is_set()

    @property
    def is_ending(self) -> bool:
        """Whether its tasks are cancelled or about to be: by `stop`, by the failure of one of them,
        or together with everything else on the loop."""
        root = self._root
        return root is None or self.is_over or self._is_leaving_group or root.cancelling() > 0

    async def start(self) -> None:
        """Open the group."""
        ready = asyncio.Event()
        # The only task outside a group, because it runs the group.
        root = self._own(ready)
        self._root = asyncio.create_task(root, name="task owner")  # noqa: TID251  # see above
        self._root.add_done_callback(self._root_ended)
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
            try:
                await watch
            finally:
                # Recorded, because a group takes back the cancellation of its owner before its
                # tasks, and those of groups among them, have ended.
                self._is_leaving_group = True
            # Children see a cancellation, the group ends, and `stop` returns.
            raise _Stopped

    def _root_ended(self, root: asyncio.Task[None]) -> None:
        if self.is_over:
            return
        error = asyncio.CancelledError() if root.cancelled() else root.exception()
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        assert error is not None, "nothing but stop() ends it well"
        self._died(error)

    async def ended(self) -> None:
        """Return when the tasks have ended, for whatever reason."""
        if self._root is not None:
            await asyncio.wait((self._root,))

    async def stop(self) -> None:
        """Cancel and await every task. Raises the first failure of a task, if any."""
        if self._root is None:
            return
        self._stopping.set()
        root, self._root = self._root, None
        try:
            await _await_stopped(root)
        except asyncio.CancelledError:
            if is_asked_to_end():
                raise
            # The tasks were cancelled from elsewhere before: they have ended, as they should.


async def _await_stopped(root: asyncio.Task[None]) -> None:
    try:
        await root
    except* _Stopped:
        pass


def is_asked_to_end() -> bool:
    """Whether a CancelledError is meant for this task rather than raised by what it called."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


class InProgress:
    """Counts current runs: `with` surrounds each one, `until_none` waits for all to end."""

    def __init__(self) -> None:
        self._running = 0
        self._none = asyncio.Event()
        self._none.set()

    def __enter__(self) -> None:
        self._running += 1
        self._none.clear()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running -= 1
        if not self._running:
            self._none.set()

    async def until_none(self) -> None:
        """Return when nothing is running."""
        await self._none.wait()


class _Stopped(Exception):
    """Ends the group from inside."""
