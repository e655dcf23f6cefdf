"""Saves the progress of groups: a journal at least every half second, the table every few seconds.

```
progress ──────▶ in `commit_slots`, which survive a kill, before the answer; journaled within a
                 second: what a power cut loses is only redelivered
an operator's ─▶ journaled at once, before the answer: a recreated topic or group must not get the
change           old progress back, nor a group that was reset
```
"""

import asyncio
from contextlib import suppress

from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.consumer_offsets import ConsumerOffsets
from sparrowmq.broker.environment import Environment
from sparrowmq.broker.table_saving import resolve_waiters
from sparrowmq.broker.tables import OffsetsTable
from sparrowmq.disk.errors import DiskFull
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Reply
from sparrowmq.net.slices import Slices
from sparrowmq.net.tasks import Uncancellable
from sparrowmq.protocol.codes import ResponseCode


class OffsetSaving:
    """Only `run` saves, forever: two journal entries are never written at the same time."""

    def __init__(
        self,
        config: BrokerConfig,
        env: Environment,
        offsets: ConsumerOffsets,
        table: OffsetsTable,
        uncancellable: Uncancellable,
        slices: Slices,
    ) -> None:
        self.workers = env.workers
        self._journal_s = config.offsets_journal_s / 2
        self._save_s = config.offsets_save_s
        self._offsets = offsets
        self._table = table
        self._uncancellable = uncancellable
        self._slices = slices
        self._log = env.log
        self._waiters: list[asyncio.Future[None]] = []
        self._is_asked = asyncio.Event()
        self.held: DiskFull | None = None
        """Why changes are refused at the moment: they would be lost with this broker's role."""

    async def reply_when_saved(self, reply: Reply) -> Reply:
        """The reply to a request that changed offsets. Raises RequestRefused."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._is_asked.set()
        try:
            if self.held is not None:
                raise self.held.with_traceback(None)
            await waiter
        except (DiskFull, OSError) as error:
            text = f"changed, but not saved: {error}"
            raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, text) from error
        return reply

    async def run(self) -> None:
        """Journal at least every half second; rewrite the whole table now and then.

        Ends with an error only: OSError when the disk has failed.
        """
        loop = asyncio.get_running_loop()
        save_at_s = loop.time() + self._save_s
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._journal_s):
                    await self._is_asked.wait()
            async with self._uncancellable:
                await self._journal()
                if loop.time() >= save_at_s:
                    save_at_s = loop.time() + self._save_s
                    await self._save()

    async def _journal(self) -> None:
        self._is_asked.clear()
        waiters, self._waiters = self._waiters, []
        found: OSError | DiskFull | None = None
        try:
            await self._table.journal(self._offsets, self.workers, self._slices)
        except DiskFull as error:
            found = error
            self._log.warning("consumer offsets are not saved: %s", error)
        except OSError as error:
            found = error
            raise
        finally:
            resolve_waiters(waiters, found)

    async def _save(self) -> None:
        try:
            await self._table.save(self._offsets, self.workers, self._slices)
        except DiskFull as error:
            self._log.warning("consumer offsets are not saved: %s", error)
