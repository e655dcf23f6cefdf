"""One simulated process: everything that started inside it can be stopped, resumed or killed.

        stop()             kill()
RUNNING ──────▶ STOPPED ──────────▶ DEAD
   ▲  └──────────────────────────────▲
   └── resume()
"""

from __future__ import annotations

import asyncio
from contextvars import Context, ContextVar, copy_context
from enum import Enum


class ProcessState(Enum):
    RUNNING = "running"
    STOPPED = "stopped"
    DEAD = "dead"


class Process:
    """Callbacks and tasks belong to the process whose context they were started in.

    A stopped process (SIGSTOP) keeps its callbacks until it is resumed; a dead one forgets them:
    its coroutines stay where they were and not even their `finally` blocks run (until they are laid
    to rest at the end of the simulation).
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = ProcessState.RUNNING
        self._held: list[asyncio.Handle] = []

    def __repr__(self) -> str:
        return f"<Process {self.name} {self.state.value}>"

    @property
    def is_running(self) -> bool:
        return self.state is ProcessState.RUNNING

    def context(self) -> Context:
        """A context in which everything belongs to this process."""
        context = copy_context()
        context.run(PROCESS.set, self)
        return context

    def hold(self, handle: asyncio.Handle) -> None:
        """Keep a callback that came due while the process is not running."""
        if self.state is ProcessState.STOPPED:
            self._held.append(handle)

    def stop(self) -> None:
        if self.state is ProcessState.RUNNING:
            self.state = ProcessState.STOPPED

    def resume(self) -> list[asyncio.Handle]:
        """Run again; returns what came due meanwhile, for the loop to run.

        Arrivals come before timers, as in a loop that was stopped while it waited.
        """
        if self.state is ProcessState.STOPPED:
            self.state = ProcessState.RUNNING
        held, self._held = self._held, []
        return sorted(held, key=lambda handle: isinstance(handle, asyncio.TimerHandle))

    def kill(self) -> None:
        self.state = ProcessState.DEAD
        self._held.clear()

    def haunt(self) -> None:
        """Let a dead process run its cleanup, when nothing is left that could observe it."""
        self.state = ProcessState.RUNNING


PROCESS: ContextVar[Process | None] = ContextVar("sparrowmq_simulated_process", default=None)
