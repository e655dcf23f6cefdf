"""Thread or helper process: syncs each completes next to a busy loop, and the cost to the loop.

python bench/syncing.py [seconds]
"""

import asyncio
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sparrowmq.disk.real_disk import RealDisk
from sparrowmq.disk.syncer import ProcessSyncer, Syncer, SyncPlan, sync_plan
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.messages import PutMessage
from sparrowmq.store.store import Store

_HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))


class ThreadSyncer:
    """What was measured against."""

    def __init__(self, disk: RealDisk) -> None:
        self._disk = disk
        self._pool = ThreadPoolExecutor(1)

    async def sync(self, plan: SyncPlan) -> None:
        """Sync in a thread."""
        await asyncio.get_running_loop().run_in_executor(self._pool, sync_plan, self._disk, plan)

    def close(self) -> None:
        """End the thread."""
        self._pool.shutdown()


async def measure(store: Store, syncer: Syncer, seconds: float) -> tuple[int, int, float]:
    """Appends and syncs in the time given, and the longest time the loop was blocked."""
    put = PutMessage("bench", 0, 0, 0, 1, _HOST, 0, bytes(128), b"", uniq_key="")
    syncs = appends = 0
    longest = 0.0
    end = time.perf_counter() + seconds

    async def flush() -> None:
        nonlocal syncs
        while time.perf_counter() < end:
            plan = store.begin_flush(urgent=True)
            if plan is not None:
                await syncer.sync(plan)
                store.finish_flush(plan)
                syncs += 1
            await asyncio.sleep(0)

    flushing = asyncio.ensure_future(flush())
    before = time.perf_counter()
    while before < end:
        for _ in range(64):  # a read callback's worth of sends
            store.append(put, 1)
        appends += 64
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest = max(longest, now - before)
        before = now
    await flushing
    return appends, syncs, longest


def main() -> None:
    """Print one line for each way."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.5
    for kind in (ThreadSyncer, ProcessSyncer):
        with tempfile.TemporaryDirectory(dir=".") as directory:
            disk = RealDisk(Path(directory))
            store = Store.open(StoreConfig(), disk, 1)
            syncer = kind(disk)
            appends, syncs, longest = asyncio.run(measure(store, syncer, seconds))
            syncer.close()
            store.close()
        print(
            f"{kind.__name__}: {syncs / seconds:,.0f} syncs/s beside {appends / seconds:,.0f}"
            f" appends/s; loop stood still at most {longest * 1000:.1f} ms"
        )


if __name__ == "__main__":
    main()
