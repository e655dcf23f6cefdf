"""Up to which log offset a broker may show messages when it starts, kept where a kill does not lose
it.

Enough copies had what lies before it, or their senders were warned and it was on the master's disk.
A master that starts but waits for its slaves shows no more than that, and neither does a slave
before a master has accepted it.

```
file    offset 8, its complement 8    written in turns, so that one of the two is always whole
        offset 8, its complement 8
```

The file is mapped, so that each confirmation costs less than a microsecond, and not synced then: a
power cut may bring back an earlier, lower offset. It is synced when the offset goes back, because
the log that it belonged to has lost its end. A missing file hides nothing: the broker has never
waited for copies, or this is the first start of a release that does so.
"""

import struct
import sys

from sparrowmq.disk.atomic_file import make_dir, read_file
from sparrowmq.disk.disk import Disk, DiskFile
from sparrowmq.disk.errors import DiskFull
from sparrowmq.store.layout import OWN_DIR

PATH = f"{OWN_DIR}/shown"
UNLIMITED = sys.maxsize
"""Everything in the log may be shown."""
_RECORD = struct.Struct("<qq")


class ShownEnd:
    """The offset, and the file that has it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._file: DiskFile | None = None
        self._is_second = False
        self.log_offset = UNLIMITED
        """Messages before it may be shown."""

    def load(self) -> None:
        """Take what the file says. Raises OSError."""
        data = read_file(self._disk, PATH)
        if data:  # an empty one was made on a full disk
            # One that is damaged as a whole shows nothing until slaves or the master say more.
            self.log_offset = max(_valid(data), default=0)

    def set(self, log_offset: int) -> None:
        """Set it; durable when this returns if it goes back. Raises OSError.

        On a full disk it is kept only as long as the broker runs.
        """
        is_lower = log_offset < self.log_offset
        is_kept = self._file is not None or log_offset == UNLIMITED
        if log_offset == self.log_offset and is_kept:
            return
        self.log_offset = log_offset
        try:
            self._open()
            self._write()
            if is_lower:
                self._write()  # neither record may say more
                self._disk.sync(PATH)
                self._disk.sync_dir(OWN_DIR)
        except DiskFull:
            self.close()

    def advance(self, log_offset: int) -> None:
        """Set it further on, once `set` was called."""
        self.log_offset = log_offset
        if self._file is not None:
            self._write()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> None:
        if self._file is None:
            make_dir(self._disk, OWN_DIR)
            self._file = self._disk.open(PATH, create=True)
            self._file.reserve(0, 2 * _RECORD.size)

    def _write(self) -> None:
        assert self._file is not None
        position = _RECORD.size if self._is_second else 0
        self._is_second = not self._is_second
        self._file.write(position, _RECORD.pack(self.log_offset, ~self.log_offset))


def _valid(data: bytes) -> list[int]:
    whole = len(data) // _RECORD.size * _RECORD.size
    records = _RECORD.iter_unpack(data[:whole])
    return [log_offset for log_offset, complement in records if complement == ~log_offset]
