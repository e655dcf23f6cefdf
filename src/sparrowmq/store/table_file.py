"""A table of the broker in config/: a JSON file that is replaced atomically, and its `.bak`.

```
save    replace name atomically; its previous content becomes name.bak
load    name, else name.bak (reported), else nothing: fine in a new store, refused in a used one
```

In a new store loading writes an empty table at once: if one is missing after that, it was lost.

Whenever the power fails, one of the two is intact and holds the last saved content or the one
before. The meaning of a table is the broker's business: it passes the function that decodes it.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from sparrowmq.disk.atomic_file import AtomicFile, read_file
from sparrowmq.disk.disk import Disk
from sparrowmq.store.errors import StoreError
from sparrowmq.store.layout import CONFIG_DIR
from sparrowmq.store.messages import Damage
from sparrowmq.store.recovery.quarantine import free_path

Table = TypeVar("Table")

_EMPTY = b"{}"


class TableMissing(StoreError):
    """A used store lacks one of its tables; starting with an empty one would lose its content."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"{path} {reason}; what the table said would be lost. Put a copy back, or"
            f" accept that with: sparrowmq store rebuild DIR --table {path.rpartition('/')[2]}"
        )
        self.path = path
        self.reason = reason


class TableFile(Generic[Table]):
    """One table. `decode` turns its bytes into a value and raises ValueError for garbage."""

    def __init__(self, disk: Disk, name: str, decode: Callable[[bytes], Table]) -> None:
        self.path = f"{CONFIG_DIR}/{name}"
        self._disk = disk
        self._file = AtomicFile(disk, self.path, keeps_backup=True)
        self._decode = decode
        self._saved: bytes | None = None

    def load(
        self,
        report: Callable[[Damage], None],
        *,
        store_is_used: bool,
        may_be_missing: bool = False,
    ) -> Table | None:
        """The table as last saved; None if there is none yet, which writes an empty one.

        `store_is_used` when the log holds messages; `may_be_missing` for tables that Apache does
        not always write. Raises TableMissing, or DiskFull and OSError.
        """
        backup = self._file.backup_path
        reasons = []
        for path in (self.path, backup):
            data = read_file(self._disk, path)
            if data is None:
                reasons.append("is missing")
                continue
            try:
                table = self._decode(data)
            except ValueError as error:
                reasons.append(f"cannot be read ({error})")
                self._put_aside(path, len(data), str(error), report)
                continue
            if path == backup:
                report(Damage(self.path, 0, 0, reasons[0], f"{backup} is used"))
            else:
                self._saved = data
            return table
        missing = reasons == ["is missing", "is missing"]
        if missing and not store_is_used:
            self.save(_EMPTY)
        if missing and (may_be_missing or not store_is_used):
            return None
        why = "and its .bak are missing" if missing else ", and its .bak ".join(reasons)
        raise TableMissing(self.path, why)

    def save(self, data: bytes) -> bool:
        """Replace the table; durable when it returns. False if the content is unchanged.

        Raises DiskFull or OSError, and the old one is then kept.
        """
        if data == self._saved:
            return False
        self._file.replace(data)
        if self._saved is None:
            # A process that was killed may have created the directory without syncing its name.
            self._disk.sync_dir("")
        self._saved = data
        return True

    def _put_aside(
        self, path: str, size: int, reason: str, report: Callable[[Damage], None]
    ) -> None:
        # If it stayed, the next save would make it the backup, replacing the intact one.
        kept = free_path(self._disk, f"{path}.damaged")
        self._disk.replace(path, kept)
        self._disk.sync_dir(CONFIG_DIR)
        report(Damage(path, 0, size, reason, f"kept as {kept}"))
