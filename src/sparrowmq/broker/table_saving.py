"""Saves tables in worker threads: changes that come together share one save.

```
changed ──▶ dirty ──▶ snapshot taken ──▶ encoded, written and synced in a worker ──▶ answered
              ▲                                        │
              └────── no space: tried again later ◀────┘
```

One save at a time, each from the table as it is when the save begins: an older state never replaces
a newer one. A handler that makes a promise waits for `saved` before it answers, or before it stores
something (`handle_when_saved`); a heartbeat that names a thousand new groups waits for nothing and
costs one save of each table.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from sparrowmq.disk.errors import DiskFull
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Handled, Reply
from sparrowmq.net.tasks import Uncancellable
from sparrowmq.net.workers import Workers
from sparrowmq.protocol.body import Body
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.store.table_file import TableFile

_GATHER_S = 0.05
"""How long to gather changes that no handler waits for."""
_AGAIN_S = 1.0


class SavedTable(Protocol):
    """A table in memory and its file."""

    @property
    def file(self) -> TableFile[Any]:
        """The file of the table; only `TableSaving` writes it."""
        ...

    def table(self) -> Body:
        """The whole table as it is now: later changes do not affect what this returned."""
        ...

    def was_saved(self, table: Any) -> None:
        """What `table` returned before is durable."""
        ...


class TableSaving:
    """Knows which tables differ from their files. `run` saves them, forever."""

    def __init__(self, workers: Workers, uncancellable: Uncancellable, log: logging.Logger) -> None:
        self.workers = workers
        self._uncancellable = uncancellable
        self._log = log
        self._dirty: dict[SavedTable, list[asyncio.Future[None]]] = {}
        """Tables to save, and the handlers that wait for it."""
        self._under_way: dict[SavedTable, list[asyncio.Future[None]]] = {}
        self._has_changes = asyncio.Event()
        self._has_waiters = asyncio.Event()
        self._failure: OSError | None = None
        self.held: DiskFull | None = None
        """Why changes are refused at the moment: they would be lost with this broker's role."""

    def changed(self, table: SavedTable) -> None:
        """Save the table soon."""
        self._dirty.setdefault(table, [])
        self._has_changes.set()

    async def saved(self, table: SavedTable) -> None:
        """Return when everything that changed in the table so far is durable.

        Raises DiskFull, and then `run` tries again; OSError when the disk has failed.
        """
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        if self.held is not None:
            raise self.held.with_traceback(None)  # or each raise would lengthen the traceback
        waiters = self._dirty.get(table, self._under_way.get(table))
        if waiters is not None:
            waiter = asyncio.get_running_loop().create_future()
            waiters.append(waiter)
            self._has_waiters.set()
            await waiter

    async def reply_when_saved(self, table: SavedTable, reply: Reply) -> Reply:
        """The reply to a request that changed the table. Raises RequestRefused."""
        try:
            await self.saved(table)
        except (DiskFull, OSError) as error:
            text = f"changed, but not saved: {error}"
            raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, text) from error
        return reply

    async def handle_when_saved(
        self, table: SavedTable, handle: Callable[[], Handled]
    ) -> Reply | None:
        """Handle a request that must not store anything before the table, as it is now, is saved.
        Raises RequestRefused."""
        try:
            await self.saved(table)
        except (DiskFull, OSError) as error:
            text = f"not stored, {table.file.path} cannot be saved: {error}"
            raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, text) from error
        handled = handle()
        return handled if handled is None or isinstance(handled, Reply) else await handled

    async def run(self) -> None:
        """Save what changes. Ends only with an error: OSError when the disk has failed."""
        while True:
            await self._has_changes.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(_GATHER_S):
                    await self._has_waiters.wait()
            async with self._uncancellable:
                await self.save()
            if self._dirty and not self._has_changes.is_set():
                await asyncio.sleep(_AGAIN_S)
                self._has_changes.set()

    async def save(self) -> None:
        """Save what has changed so far. A table that finds no space stays dirty. Raises OSError."""
        self._has_changes.clear()
        self._has_waiters.clear()
        if self._failure is not None or not self._dirty:
            return
        saves, self._dirty = self._dirty, {}
        self._under_way = saves
        tables = [(table.file, table.table()) for table in saves]
        try:
            found = await self.workers.run(_write, tables)
        except OSError as error:
            self._failure = error
            for waiters in (*saves.values(), *self._dirty.values()):
                resolve_waiters(waiters, error)
            raise
        finally:
            self._under_way = {}
        for (table, waiters), (_, body), full in zip(saves.items(), tables, found, strict=True):
            if full is None:
                table.was_saved(body)
            else:
                self._log.warning("%s is not saved: %s; trying again", table.file.path, full)
                self._dirty.setdefault(table, [])
            resolve_waiters(waiters, full)


def _write(tables: Sequence[tuple[TableFile[Any], Body]]) -> list[DiskFull | None]:
    """Write in a worker; returns for each table None, or DiskFull if it found no space."""
    found: list[DiskFull | None] = []
    for file, table in tables:
        try:
            file.save(table.to_json())
        except DiskFull as error:
            found.append(error)
        else:
            found.append(None)
    return found


def resolve_waiters(waiters: Sequence[asyncio.Future[None]], error: Exception | None) -> None:
    """A save ended, with an error or None: let the handlers continue."""
    for waiter in waiters:
        if waiter.done():
            continue  # its client is gone
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)
