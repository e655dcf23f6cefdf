"""Taking over a store that Apache wrote, and finding what Apache wrote into ours."""

from collections import Counter

from sparrowmq.testing.recording_disk import RecordingDisk
from tests.store.filled_stores import COUNT, derived, everything, filled, with_an_old_topic
from tests.store.stores import SMALL, message, open_store


def apaches(disk: RecordingDisk) -> RecordingDisk:
    """A stopped store without anything of ours in it."""
    filled(disk).close()
    for path in derived(disk, "sparrowmq"):
        disk.unlink(path)
    return disk


def test_a_stopped_store_of_apaches_is_opened_without_a_full_scan() -> None:
    disk = apaches(RecordingDisk())
    before = derived(disk, "consumequeue")
    read: set[str] = set()
    disk.on_call = lambda operation, path: read.add(path) if operation == "read" else None
    store = open_store(disk)
    disk.on_call = None
    assert f"commitlog/{SMALL.log_file_size:020d}" not in read
    assert everything(store) == list(range(COUNT))
    assert store.find_by_key("orders", "k123", 0, COUNT, 8).log_offsets
    store.close()
    assert derived(disk, "consumequeue") == before


def test_a_queue_that_apache_lost_is_rebuilt_with_all_its_messages() -> None:
    disk = apaches(RecordingDisk())
    before = derived(disk, "consumequeue")
    for path in derived(disk, "consumequeue/orders/1"):
        disk.unlink(path)
    store = open_store(disk)
    assert everything(store) == list(range(COUNT))
    store.close()
    assert derived(disk, "consumequeue") == before


def trimmed(disk: RecordingDisk) -> RecordingDisk:
    """Apache's store after the first two log files and the queue files before them expired."""
    disk = apaches(disk)
    for start in (0, SMALL.log_file_size):
        disk.unlink(f"commitlog/{start:020d}")
    for queue_id in range(3):
        disk.unlink(f"consumequeue/orders/{queue_id}/{0:020d}")
    return disk


def test_a_store_of_apaches_whose_first_files_expired_is_opened_too() -> None:
    disk = trimmed(RecordingDisk())
    before = derived(disk, "consumequeue")
    first = f"commitlog/{2 * SMALL.log_file_size:020d}"
    reads: Counter[str] = Counter()
    disk.on_call = lambda operation, path: reads.update([path] if operation == "read" else [])
    store = open_store(disk)
    disk.on_call = None
    assert reads[first] <= 3, "no scan"
    kept = everything(store)
    assert kept == list(range(kept[0], COUNT)) and kept[0] > 100
    store.close()
    assert derived(disk, "consumequeue") == before


def test_a_first_queue_file_that_apache_lost_is_rebuilt_though_the_log_has_lost_its_beginning() -> (
    None
):
    kept = everything(open_store(trimmed(RecordingDisk())))
    disk = trimmed(RecordingDisk())
    disk.unlink(min(derived(disk, "consumequeue/orders/1")))
    assert everything(open_store(disk)) == kept


def test_queues_of_apaches_that_lead_elsewhere_are_not_trusted() -> None:
    disk = apaches(RecordingDisk())
    path = "consumequeue/orders/2/00000000000000000000"
    disk.poke(path, disk.files()["consumequeue/orders/0/00000000000000000000"])
    last = max(derived(disk, "consumequeue/orders/2"))
    disk.poke(last, disk.files()[last.replace("/2/", "/0/")])
    assert everything(open_store(disk)) == list(range(COUNT))


def test_a_crashed_store_of_apaches_is_read_from_its_beginning() -> None:
    disk = apaches(RecordingDisk())
    disk.open("abort", create=True)
    for path, data in derived(disk, "consumequeue").items():
        disk.poke(path, bytes(len(data)))
    assert everything(open_store(disk)) == list(range(COUNT))


def test_a_queue_that_expired_before_apache_crashed_keeps_its_offset() -> None:
    disk = with_an_old_topic()
    for path in [*derived(disk, "sparrowmq"), "commitlog/00000000000000000000"]:
        disk.unlink(path)
    disk.open("abort", create=True)
    store = open_store(disk)
    assert store.queue_range("old", 0) == (10, 10)
    assert store.append(message(10, "old"), 201).queue_offset == 10


def test_messages_apache_appended_to_our_store_are_found() -> None:
    disk = RecordingDisk()
    filled(disk, 100).close()
    ours = disk.killed()
    filled_further = open_store(disk)
    for number in range(100, 250):
        filled_further.append(message(number, queue_id=number % 3), number)
    filled_further.close()
    for path, data in derived(disk, "commitlog").items():
        ours.poke(path, data)
    assert everything(open_store(ours)) == list(range(250))
