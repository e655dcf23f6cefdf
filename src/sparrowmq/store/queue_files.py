"""The files of all consume queues, and the units they hold.

```
unit 20   log offset 8, record size 4, tag hash 8 (delay topics: delivery time)
```

Files are sparse. Units that are missing because their log records are gone hold Apache's blank:
log offset 0, size 2^31-1, tag 0.
"""

import struct

from sparrowmq.store.config import CONSUME_QUEUE_UNIT as UNIT_SIZE
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.disk import Disk, DiskFile
from sparrowmq.store.open_files import OpenFiles

UNIT = struct.Struct(">qiq")
BLANK_UNIT = UNIT.pack(0, 0x7FFFFFFF, 0)
BLANK_UNIT_SIZE = 0x7FFFFFFF


class QueueFiles:
    """The files of all consume queues: opened when needed, made when missing."""

    def __init__(self, config: StoreConfig, disk: Disk) -> None:
        self.disk = disk
        self.units_per_file = config.queue_file_units
        self._file_size = config.queue_file_size
        self._open = OpenFiles(disk, config.open_queue_files, write=True)
        self.unsynced: set[str] = set()
        """Paths written since the last checkpoint took them."""
        self.unsynced_dirs: set[str] = set()

    def open_file(self, path: str) -> DiskFile | None:
        """An existing file, None if it is missing."""
        try:
            return self._open.get(path)
        except FileNotFoundError:
            return None

    def write(self, path: str, position: int, data: bytes) -> None:
        """Write into a file, making it with its full size where it is missing."""
        file = self.open_file(path)
        if file is None:
            file = self._make(path)
            if position:
                file.write(0, BLANK_UNIT * (position // UNIT_SIZE))
        file.write(position, data)
        self.unsynced.add(path)

    def _make(self, path: str) -> DiskFile:
        directory = path.rpartition("/")[0]
        self.disk.mkdir(directory)
        file = self.disk.open(path, create=True)
        # Sparse: 8,000 queues with all their space allocated would take 48 GB.
        file.truncate(self._file_size)
        # Topic and queue may be new as well: each name is durable with the directory it is in.
        topic_dir = directory.rpartition("/")[0]
        self.unsynced_dirs |= {directory, topic_dir, topic_dir.rpartition("/")[0]}
        return self._open.put(path, file)

    def remove(self, path: str) -> None:
        """Delete a file."""
        self._open.drop(path)
        self.unsynced.discard(path)
        self.disk.unlink(path)

    def repair_size(self, path: str) -> None:
        """Give a file the length that Apache demands."""
        file = self.open_file(path)
        if file is not None and file.size() != self._file_size:
            file.truncate(self._file_size)
            self.unsynced.add(path)

    def close(self) -> None:
        """Close all."""
        self._open.close()
