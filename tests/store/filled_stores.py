"""A store of three queues with snapshots and flushes, for tests of starting it again."""

from sparrowmq.store.store import Store
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.store.stores import flush, message, numbers, open_store

COUNT = 400


def filled(disk: RecordingDisk, count: int = COUNT) -> Store:
    """A store with messages in three queues, snapshots and flushes between them."""
    store = open_store(disk)
    for number in range(count):
        store.append(message(number, queue_id=number % 3), number)
        if number % 50 == 0:
            store.tick(number * 10)
            flush(store, disk)
    return store


def with_an_old_topic() -> RecordingDisk:
    """A stopped store: ten messages of a topic lie in the first log file, others behind them."""
    disk = RecordingDisk()
    store = open_store(disk)
    for number in range(10):
        store.append(message(number, "old"), number)
    for number in range(200):
        store.append(message(number), number)
    store.close()
    return disk


def everything(store: Store) -> list[int]:
    """The numbers of every message in the three queues."""
    return sorted(number for queue_id in range(3) for number in numbers(store, queue_id=queue_id))


def derived(disk: RecordingDisk, folder: str) -> dict[str, bytes]:
    """Every file in a folder, by its path."""
    return {path: data for path, data in disk.files().items() if path.startswith(folder + "/")}
