"""Syncing beside the loop: in a helper process, or inline where time is simulated.

A thread would be too slow: after each fdatasync it has to get the GIL back from a busy loop, and
the loop waits for it in turn. `bench/syncing.py` measures this.
"""

import asyncio
import contextlib
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import msgspec

from sparrowmq.disk.disk import Disk

_HEAD = struct.Struct(">II")
_ANSWER = struct.Struct(">III")
WORKER = Path(__file__).with_name("sync_process.py")
_PATIENCE_S = 10.0
"""How long a helper may take to notice that it is no longer needed."""

MANY_FILES = 256
"""More derived files than this are synced all at once, with everything else on the machine: one by
one they take 1 to 3 ms each. Errors are not reported then, which does not matter: their CRCs are
checked at start."""


class SyncPlan(msgspec.Struct):
    """What to sync; it only counts if all of it succeeds."""

    files: list[str]
    """Log files: a missing one is an error."""
    derived: list[str]
    """Queues, index, snapshots: a missing one was deleted meanwhile and needs no sync."""
    directories: list[str]
    """Synced after the files; a missing one needs none."""


def sync_plan(disk: Disk, plan: SyncPlan) -> None:
    """Sync everything in the plan before returning. Raises OSError for the first failure."""
    for path in plan.files:
        disk.sync(path)
    if len(plan.derived) > MANY_FILES and disk.real_path("") is not None:
        os.sync()
        return
    for path in plan.derived:
        with contextlib.suppress(FileNotFoundError):
            disk.sync(path)
    for path in plan.directories:
        with contextlib.suppress(FileNotFoundError):
            disk.sync_dir(path)


class Syncer(Protocol):
    """Makes sync plans durable."""

    async def sync(self, plan: SyncPlan) -> None:
        """Return when everything in the plan is durable. Raises OSError: nothing is sure then."""
        ...

    def close(self) -> None:
        """Stop whatever runs beside the loop."""
        ...


class InlineSyncer:
    """Syncs immediately, for simulations."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    async def sync(self, plan: SyncPlan) -> None:
        """Return when everything in the plan is durable."""
        sync_plan(self._disk, plan)

    def close(self) -> None:
        """Do nothing."""


class ProcessSyncer:
    """Passes plans to a helper process, one plan at a time.

    `begin`, `fileno` and `take_answer` work with any loop, `sync` with asyncio's. The helper ends
    when its socket closes: with `close`, or with this process.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._number = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop that watches the socket …"""
        self._waiting: asyncio.Future[None] | None = None
        """… and the future that waits for an answer."""
        self._failure: OSError | None = None
        """The failure of a plan without a waiter: a file system reports an error only once."""

    def start(self) -> None:
        """Start the helper; `begin` does so if needed."""
        if self._process is not None:
            return
        ours, theirs = socket.socketpair()
        with theirs:
            # -I -S: no site packages, no environment; it starts in a fraction of the time.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(WORKER), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._socket = ours

    @property
    def process_id(self) -> int | None:
        """The helper's process id, None before it is started."""
        return None if self._process is None else self._process.pid

    def begin(self, plan: SyncPlan) -> int:
        """Send a plan; `fileno` becomes readable when it is done. Returns the plan's id."""
        self.start()
        assert self._socket is not None
        body = b"\0".join(self._items(plan))
        self._number = (self._number + 1) % (1 << 32)
        self._socket.sendall(_HEAD.pack(len(body), self._number) + body)
        return self._number

    def _items(self, plan: SyncPlan) -> list[bytes]:
        items: list[bytes] = []
        derived, directories = plan.derived, plan.directories
        if len(derived) > MANY_FILES:
            items += (b"A", b"")
            derived, directories = [], []
        for kind, paths in (("L", plan.files), ("Q", derived), ("D", directories)):
            for path in paths:
                real = self._disk.real_path(path)
                if real is None:
                    raise ValueError(f"no other process can sync {path}")
                items += (kind.encode(), os.fsencode(real))
        return items

    def fileno(self) -> int:
        """The descriptor to watch."""
        assert self._socket is not None
        return self._socket.fileno()

    def take_answer(self) -> int:
        """The id of the finished plan. Raises OSError if a sync failed or the helper is gone."""
        number, error, length = _ANSWER.unpack(self._receive(_ANSWER.size))
        path = os.fsdecode(self._receive(length)) if length else ""
        if error:
            raise OSError(error, os.strerror(error), path)
        return int(number)

    def _receive(self, length: int) -> bytes:
        assert self._socket is not None
        data = b""
        while len(data) < length:
            piece = self._socket.recv(length - len(data))
            if not piece:
                raise BrokenPipeError("the process that syncs files has ended")
            data += piece
        return data

    async def sync(self, plan: SyncPlan) -> None:
        """Return when everything in the plan is durable. Raises OSError: nothing is sure then."""
        if not (plan.files or plan.derived or plan.directories):
            return
        if self._failure is not None:
            raise self._failure
        loop = asyncio.get_running_loop()
        waiting = self._waiting = loop.create_future()
        self.begin(plan)
        self._watch(loop)
        await waiting

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Watch the socket permanently: starting and stopping with each sync costs 10 µs."""
        if self._loop is not loop:
            self._unwatch()
            self._loop = loop
            loop.add_reader(self.fileno(), self._tell)

    def _unwatch(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self.fileno())
        self._loop = None

    def _tell(self) -> None:
        """Read an answer and wake its waiter; an earlier one's waiter was cancelled.

        If an earlier plan failed, the next one fails too, because nothing is certain then.
        """
        waiting = self._waiting
        try:
            is_last = self.take_answer() == self._number
        except OSError as error:
            if isinstance(error, ConnectionError):
                self._unwatch()
            if waiting is None or waiting.done():
                self._failure = error
            else:
                waiting.set_exception(error)
            return
        if is_last and waiting is not None and not waiting.done():
            waiting.set_result(None)

    def close(self) -> None:
        """Stop the helper and wait for it."""
        if self._socket is not None:
            self._unwatch()
            self._socket.close()
            self._socket = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE_S)
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            self._process = None


def syncer_for(disk: Disk) -> Syncer:
    """The right syncer for the disk."""
    return InlineSyncer(disk) if disk.real_path("") is None else ProcessSyncer(disk)
