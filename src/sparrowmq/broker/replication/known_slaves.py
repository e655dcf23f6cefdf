"""The slaves that a master must not forget: one of them may have messages that it lost itself.

A master that comes back after a power cut may end before its slaves do: they acknowledged what it
had not synced yet. It therefore remembers who follows it, durably and before the first byte is
fed, and asks them before it serves again (`returning_master.py`).

`complete_to` stands in the file while the master does not run and stopped in order: then its log
has everything, and no slave needs to be asked.
"""

import msgspec

from sparrowmq.disk.atomic_file import AtomicFile
from sparrowmq.disk.disk import Disk
from sparrowmq.store.layout import OWN_DIR

SLAVES = f"{OWN_DIR}/slaves.json"


class _Saved(msgspec.Struct):
    slaves: dict[str, str]
    complete_to: int | None = None


class KnownSlaves:
    """Addresses of slaves by broker id, as the file has them."""

    def __init__(self, disk: Disk) -> None:
        self._file = AtomicFile(disk, SLAVES)
        self.addresses: dict[int, str] = {}
        self.complete_to: int | None = None

    @staticmethod
    def load(disk: Disk) -> "KnownSlaves":
        """What the file says; no slaves where there is none. Raises OSError, ValueError."""
        known = KnownSlaves(disk)
        data = known._file.read()
        if data is not None:
            saved = msgspec.json.decode(data, type=_Saved)
            known.addresses = {int(key): address for key, address in saved.slaves.items()}
            known.complete_to = saved.complete_to
        return known

    def remember(self, broker_id: int, address: str) -> bool:
        """Note a slave; whether that has to be saved."""
        if self.addresses.get(broker_id) == address:
            return False
        self.addresses[broker_id] = address
        return True

    def save(self) -> None:
        """Durable when this returns. Raises DiskFull, or OSError."""
        slaves = {str(key): address for key, address in sorted(self.addresses.items())}
        self._file.replace(msgspec.json.encode(_Saved(slaves, self.complete_to)))

    def master_starts(self) -> None:
        """From now on the log may lose its end. Raises DiskFull, or OSError."""
        if self.complete_to is not None:
            self.complete_to = None
            self.save()

    def master_stopped(self, log_end: int) -> None:
        """The log is durable up to its end. Raises DiskFull, or OSError."""
        if self.addresses:
            self.complete_to = log_end
            self.save()

    def reachable_needed(self, copies_wanted: int) -> int:
        """How many slaves have to answer so that one of them has every acknowledged message."""
        confirming = min(copies_wanted - 1, len(self.addresses))
        return len(self.addresses) - confirming + 1 if confirming > 0 else 0
