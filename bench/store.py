"""The cost of the store by itself: append, batch, read, recovery, rebuild, memory.

    python bench/store.py [messages]

Times are the median over slices of 500 messages, and the fastest slice, which other load on the
machine disturbs least.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from sparrowmq.disk.real_disk import RealDisk
from sparrowmq.disk.syncer import sync_plan
from sparrowmq.protocol.tags import tag_code
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.messages import PutMessage, QueueRead, ReadStatus
from sparrowmq.store.store import Store
from tests.store.stores import batch

_HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
_SLICE = 500


def put(number: int, queue_id: int) -> PutMessage:
    """A message like a Java client's: 128 bytes, unique id, tag."""
    key = f"7F0000010A8418B4AAC2{number:012X}"
    return PutMessage(
        topic="bench",
        queue_id=queue_id,
        flag=0,
        sys_flag=0,
        born_timestamp=1,
        born_host=_HOST,
        reconsume_times=0,
        body=bytes(128),
        properties=f"UNIQ_KEY\x01{key}\x02TAGS\x01created\x02".encode(),
        tags_code=tag_code("created"),
        uniq_key=key,
    )


def show(what: str, slices: list[float], each: int) -> None:
    """One line: microseconds a message."""
    times = [one / each * 1e6 for one in slices]
    print(f"{what}: {median(times):.2f} µs a message, fastest {min(times):.2f}")


def append(store: Store, count: int, queues: int, work: Callable[[list[PutMessage]], None]) -> None:
    """Append in slices; only `work` is timed, ticks are shown apart."""
    slices, ticks = [], []
    for first in range(0, count, _SLICE):
        queue_id = first // _SLICE % queues
        puts = [put(number, queue_id) for number in range(first, first + _SLICE)]
        begin = time.perf_counter()
        work(puts)
        middle = time.perf_counter()
        store.tick(first // 50)
        slices.append(middle - begin)
        ticks.append(time.perf_counter() - middle)
    show(f"{work.__name__}, {queues} queues", slices, _SLICE)
    show("  ticks behind it: queues and index", ticks, _SLICE)


def read_all(store: Store, queues: int) -> None:
    """Read every queue, 32 at a time."""
    slices = []
    for queue_id in range(queues):
        offset = 0
        while True:
            begin = time.perf_counter()
            found = store.read_queue("bench", queue_id, offset, max_count=32)
            slices.append((time.perf_counter() - begin) / 32)
            assert isinstance(found, QueueRead)
            if found.status is not ReadStatus.FOUND:
                break
            offset = found.next_offset
    show("read, 32 at a time", slices, 1)


def reopen(what: str, directory: Path, records: int) -> None:
    """Open the store and say how fast."""
    begin, busy = time.perf_counter(), time.process_time()
    store = Store.open(StoreConfig(), RealDisk(directory), 1, _ignore)
    took, busy = time.perf_counter() - begin, time.process_time() - busy
    print(f"{what}: {took:.2f} s, {records / busy:,.0f} records per second of CPU")
    store.close()


def _ignore(_: object) -> None:
    pass


def anonymous_mb() -> int:
    """Memory of this process that is not mapped from files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) // 1024
    return 0


def main() -> None:
    """Measure everything in a directory here."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    with tempfile.TemporaryDirectory(dir=".") as name:
        directory = Path(name)
        disk = RealDisk(directory)
        before = anonymous_mb()
        store = Store.open(StoreConfig(), disk, 1)

        def one_by_one(puts: list[PutMessage]) -> None:
            for one in puts:
                store.append(one, 1)

        def batches_of_32(puts: list[PutMessage]) -> None:
            for first in range(0, len(puts), 32):
                store.append_batch(batch(puts[first : first + 32]), 1)

        append(store, count, 8, one_by_one)
        append(store, count, 8, batches_of_32)
        read_all(store, 8)
        plan = store.begin_flush()
        if plan is not None:
            sync_plan(disk, plan)
            store.finish_flush(plan)
        print(f"anonymous memory: {anonymous_mb()} MB, {before} MB before")
        store.close()
        reopen("open after a normal stop", directory, 2 * count)
        shutil.rmtree(directory / "consumequeue")
        reopen("rebuild queues", directory, 2 * count)
        shutil.rmtree(directory / "index")
        reopen("rebuild index", directory, 2 * count)
        shutil.rmtree(directory / "sparrowmq")
        reopen("rebuild everything", directory, 2 * count)


if __name__ == "__main__":
    main()
