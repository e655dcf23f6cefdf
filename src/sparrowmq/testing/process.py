"""One simulated process: everything that started inside it can be stopped, resumed or killed.

        stop()             kill()
RUNNING ──────▶ STOPPED ──────────▶ DEAD
   ▲  └──────────────────────────────▲
   └── resume()
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import Context, ContextVar, copy_context
from enum import Enum


class ProcessState(Enum):
    RUNNING = "running"
    STOPPED = "stopped"
    DEAD = "dead"


class Process:
    """Callbacks and tasks belong to the process whose context they were started in.

    A stopped process (SIGSTOP) keeps its callbacks until it is resumed; a dead one forgets them:
    its coroutines stay where they were and not even their `finally` blocks run.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = ProcessState.RUNNING
        self._held: deque[asyncio.Handle] = deque()

    def __repr__(self) -> str:
        return f"<Process {self.name} {self.state.value}>"

    @property
    def is_running(self) -> bool:
        return self.state is ProcessState.RUNNING

    def context(self) -> Context:
        """A context inside of which everything belongs to this process."""
        context = copy_context()
        context.run(PROCESS.set, self)
        return context

    def hold(self, handle: asyncio.Handle) -> None:
        """Take a callback that came due while the process does not run."""
        if self.state is ProcessState.STOPPED:
            self._held.append(handle)

    def stop(self) -> None:
        if self.state is ProcessState.RUNNING:
            self.state = ProcessState.STOPPED

    def resume(self) -> deque[asyncio.Handle]:
        """Run again; returns what came due meanwhile, in order, for the loop to run."""
        if self.state is ProcessState.STOPPED:
            self.state = ProcessState.RUNNING
        held, self._held = self._held, deque()
        return held

    def kill(self) -> None:
        self.state = ProcessState.DEAD
        self._held.clear()


PROCESS: ContextVar[Process | None] = ContextVar("sparrowmq_simulated_process", default=None)
