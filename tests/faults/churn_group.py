"""A group whose members are processes: forked, asked to leave, killed and stopped by signals."""

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess

from tests.faults.churn import Call, History, is_shared_out
from tests.faults.churn_member import MemberOptions, run

_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload([run.__module__])


class MemberProcess:
    """One member, and what it has told."""

    def __init__(
        self,
        name: str,
        options: MemberOptions,
        done: set[tuple[int, int]],
        heard: Callable[[], None],
    ) -> None:
        """`heard` is called whenever it has told something; what it handled is added to `done`."""
        self.name = name
        self.held: list[int] = []
        self.calls: list[Call] = []
        self.gone = asyncio.Event()
        self.stops_s: list[tuple[float, float]] = []
        """From when until when it was stopped."""
        self._done = done
        self._heard = heard
        self._open: dict[tuple[int, ...], Call] = {}
        self._rest = b""
        self._told, told = _FORKED.Pipe(duplex=False)
        leave, self._leave = _FORKED.Pipe(duplex=False)
        self._process: ForkServerProcess = _FORKED.Process(
            target=run, args=(name, options, told, leave), name=name, daemon=True
        )
        self._process.start()
        told.close()
        leave.close()
        asyncio.get_running_loop().add_reader(self._told.fileno(), self._read)

    def _read(self) -> None:
        data = os.read(self._told.fileno(), 1 << 16)
        if not data:
            asyncio.get_running_loop().remove_reader(self._told.fileno())
            self.gone.set()
            self._heard()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            kind, at, *numbers = line.decode().split()
            self._take(kind, float(at), tuple(map(int, numbers)))
        self._heard()

    def _take(self, kind: str, at_s: float, numbers: tuple[int, ...]) -> None:
        if kind == "a":
            self.held = list(numbers)
        elif kind == "b":
            call = Call(self.name, numbers[0], numbers[1:], at_s)
            self._open[numbers] = call
            self.calls.append(call)
        else:
            self._open.pop(numbers).ended_s = at_s
            self._done.update((numbers[0], offset) for offset in numbers[1:])

    # ---- what happens to it

    async def leave(self) -> None:
        """Let it stop in order, and wait for that."""
        self._leave.close()
        await self._end()

    async def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        await self._end()
        self._leave.close()

    async def _end(self) -> None:
        await self.gone.wait()
        self._told.close()
        # Its pipe is closed, so it ends now; waiting here would only stop the loop.
        await asyncio.get_running_loop().run_in_executor(None, self._process.join)

    def stop(self) -> None:
        """SIGSTOP."""
        self.stops_s.append((time.monotonic(), float("inf")))
        os.kill(self._pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        os.kill(self._pid, signal.SIGCONT)
        self.stops_s[-1] = self.stops_s[-1][0], time.monotonic()

    @property
    def _pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid


class ProcessGroup:
    """The members that live now, and those that are gone."""

    def __init__(self, options: MemberOptions, queues: int) -> None:
        self.options = options
        self.queues = queues
        self.live: dict[str, MemberProcess] = {}
        self.all: list[MemberProcess] = []
        self.done: set[tuple[int, int]] = set()
        """Queue and offset of every message that was handled."""
        self._changed = asyncio.Event()

    def join(self) -> MemberProcess:
        """Another member."""
        name = f"member-{len(self.all) + 1}"
        member = MemberProcess(name, self.options, self.done, self._changed.set)
        self.live[member.name] = member
        self.all.append(member)
        return member

    async def until(self, condition: Callable[[], bool], within_s: float) -> float:
        """How long it took until a condition held. Raises TimeoutError."""
        began_s = time.monotonic()
        async with asyncio.timeout(within_s):
            while not condition():
                self._changed.clear()
                await self._changed.wait()
        return time.monotonic() - began_s

    def is_settled(self) -> bool:
        """Whether every queue has one owner, as far as the members told."""
        return is_shared_out([member.held for member in self.live.values()], self.queues)

    def into(self, history: History) -> None:
        """Hand over what all members did."""
        history.calls = [call for member in self.all for call in member.calls]

    async def end(self) -> None:
        """All members leave."""
        for member in self.live.values():
            await member.leave()
        self.live.clear()
