"""Reads from the page cache only: they never start a read of the device."""

import mmap
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sparrowmq.disk.page_cache import CachedReads, PagesHeld, page_counter
from sparrowmq.disk.real_disk import RealDisk

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux's page cache")
KIB, MIB = 1024, 1024 * 1024
CONTENT = bytes(range(256)) * (4 * MIB // 256)

Counter = Callable[[int], PagesHeld | None]
COUNTERS: dict[str, Counter] = {
    "cachestat": page_counter,
    "Linux without cachestat": lambda descriptor: None,
    "a file system that cannot tell": lambda descriptor: lambda offset, length: None,
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of 4 MiB that is durable, so that its pages can be evicted."""
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.write(CONTENT)
        file.flush()
        os.fsync(file.fileno())
    return path


@pytest.fixture
def evicted(path: Path) -> Path:
    """The same, evicted from memory; skipped where that is impossible or not observable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        pages_held = page_counter(descriptor)
        if not CachedReads(descriptor).can_tell or pages_held is None:
            pytest.skip("needs Linux 6.5 and a file system with RWF_NOWAIT")
        if pages_held(0, len(CONTENT)) != 0:
            pytest.skip("this file system evicts nothing")
    finally:
        os.close(descriptor)
    return path


def started_reads() -> int:
    """Blocks that this thread has asked the device for."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_inblock


@pytest.mark.parametrize("counter", COUNTERS.values(), ids=COUNTERS)
@pytest.mark.parametrize(
    ("offset", "length"),
    [(0, 10), (5000, 100_000), (4 * MIB - 7, 7), (4 * MIB - 7, 9000), (4 * MIB, 5), (5 * MIB, 5)],
)
def test_what_is_in_memory_is_read(path: Path, counter: Counter, offset: int, length: int) -> None:
    with path.open("rb") as file:
        reads = CachedReads(file.fileno(), counter)
        if not reads.can_tell:
            pytest.skip("needs a file system with RWF_NOWAIT")
        assert reads.read(offset, length) == CONTENT[offset : offset + length]
        assert reads.read(offset, 0) == b""


@pytest.mark.parametrize("counter", COUNTERS.values(), ids=COUNTERS)
def test_what_is_not_in_memory_is_not_read(evicted: Path, counter: Counter) -> None:
    with evicted.open("rb") as file:
        before = started_reads()
        found = CachedReads(file.fileno(), counter).read(0, 100)
    # Where Linux cannot be asked, it starts to read what was missed, and that is all: a fast device
    # may have answered by then.
    assert found is None or (counter is not page_counter and found == CONTENT[:100])
    assert started_reads() - before <= mmap.PAGESIZE // 512


def test_a_miss_starts_no_device_read(evicted: Path) -> None:
    file = RealDisk(evicted.parent).open("file", write=False)
    before = started_reads()
    for offset in range(0, 4 * MIB, 64 * KIB):
        assert file.read_cached(offset, 16 * KIB) is None
    assert started_reads() == before


def test_a_range_of_which_one_page_is_missing_is_not_read(evicted: Path) -> None:
    disk = RealDisk(evicted.parent)
    there, beyond = MIB, MIB + 64 * KIB
    other = disk.open("file", write=False)
    other.read_ahead(there, beyond - there)
    other.read(there, beyond - there)
    file = disk.open("file", write=False)
    before = started_reads()
    assert file.read_cached(there, beyond - there) == CONTENT[there:beyond]
    assert file.read_cached(there, beyond - there + 1) is None
    assert file.read_cached(there - 1, 2) is None
    assert started_reads() == before


def test_sequential_reads_start_no_device_reads_after_another_readers_read_ahead(
    evicted: Path,
) -> None:
    """A plain read would leave a mark, at which the next reader has to start read-ahead."""
    disk = RealDisk(evicted.parent)
    for start in range(0, 2 * MIB, 32 * KIB):  # one after the other, each through a new descriptor
        worker = disk.open("file", write=False)
        worker.read_ahead(start, 32 * KIB)
        worker.read(start, 32 * KIB)
        worker.close()
    file = disk.open("file", write=False)
    before = started_reads()
    for start in range(0, 2 * MIB, 16 * KIB):
        assert file.read_cached(start, 16 * KIB) == CONTENT[start : start + 16 * KIB]
    assert file.read_cached(2 * MIB, 1) is None
    assert started_reads() == before


def test_a_range_that_was_read_ahead_needs_no_further_reads(evicted: Path) -> None:
    file = RealDisk(evicted.parent).open("file", write=False)
    file.read_ahead(0, 3 * MIB)
    before = started_reads()
    assert file.read(0, 3 * MIB) == CONTENT[: 3 * MIB]
    assert started_reads() == before


def test_a_file_system_without_such_reads_is_read_as_usual() -> None:
    file = RealDisk(Path("/proc/self")).open("status", write=False)
    assert file.read_cached(0, 5) == b"Name:"


def test_a_file_that_cannot_tell_is_asked_once(path: Path) -> None:
    asked: list[int] = []

    def counter(descriptor: int) -> PagesHeld:
        return lambda offset, length: asked.append(offset)

    with path.open("rb") as file:
        reads = CachedReads(file.fileno(), counter)
        if not reads.can_tell:
            pytest.skip("needs a file system with RWF_NOWAIT")
        assert reads.read(0, 5) == reads.read(256, 5) == CONTENT[:5]
    assert asked == [0]
