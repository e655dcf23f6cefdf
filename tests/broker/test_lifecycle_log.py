"""What a broker logs about its start and its stop."""

import pytest

from sparrowmq.broker.lifecycle_log import recovery_text, size_text, space_warning
from sparrowmq.disk.real_disk import RealUsage
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.flushing import Recovered
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.store.stores import flush, message, open_store


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (Recovered(), "the store is empty"),
        (Recovered(end=9), "the last stop was clean; nothing to scan"),
        (Recovered(end=9, was_running=True), "the last stop was not clean; nothing to scan"),
        (
            Recovered(end=9, was_running=True, scanned_bytes=2048, scanned_records=1_204),
            "the last stop was not clean; scanned 1,204 records (2.0 KiB)",
        ),
        (
            Recovered(end=9, scanned_bytes=7, scanned_records=1, cut_bytes=5, rebuilt_queues=3),
            "the last stop was clean; scanned 1 record (7 B), cut 5 B, rebuilt 3 queues",
        ),
    ],
)
def test_recovery_logs_how_the_last_run_ended_and_what_it_did(found: Recovered, says: str) -> None:
    assert recovery_text(found) == says


def test_a_store_counts_what_its_recovery_did() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    for number in range(10):
        store.append(message(number), number)
    flush(store, disk)
    killed = open_store(disk.killed()).recovered
    assert (killed.was_running, killed.scanned_records, killed.cut_bytes) == (True, 10, 0)
    store.close()
    closed = open_store(disk).recovered
    assert (closed.was_running, closed.scanned_bytes, closed.rebuilt_queues) == (False, 0, 0)


def test_a_store_counts_what_it_cut_and_the_queues_it_rebuilt() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    for number in range(4):
        store.append(message(number, queue_id=number % 2), number)
    flush(store, disk)
    end = store.max_log_offset
    store.close()
    path = "commitlog/00000000000000000000"
    content = disk.files()[path]
    disk.poke(path, content[:end] + b"torn" + content[end + 4 :])
    for name in [name for name in disk.files() if name.startswith("consumequeue/orders/1/")]:
        disk.unlink(name)
    found = open_store(disk).recovered
    assert (found.scanned_records, found.cut_bytes, found.rebuilt_queues) == (4, 4, 1)


@pytest.mark.parametrize(
    ("free_percent", "says"),
    [
        (26, ""),
        (25, "75% full (25.0 GiB of 100.0 GiB are free): from 75% on (store-clean-ratio) expired"),
        (15, "from 85% on (store-force-clean-ratio) the oldest messages are deleted although"),
        (4, "96% full (4.0 GiB of 100.0 GiB are free): from 90% on (store-refuse-ratio) messages"),
    ],
)
def test_a_disk_that_is_nearly_full_is_reported_with_figures(free_percent: int, says: str) -> None:
    gib = 1024**3
    text = space_warning(StoreConfig(), RealUsage(100 * gib, free_percent * gib))
    assert says in text
    assert bool(text) is bool(says)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 * 1024**4, "3.0 TiB")],
)
def test_sizes_are_short(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text
