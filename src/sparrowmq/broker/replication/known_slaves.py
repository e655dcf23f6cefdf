"""The slaves that a master must not forget: one of them may have messages that the master lost.

After a power cut a master's log may end before those of its slaves: they acknowledged what it had
not synced yet. It therefore remembers its followers, durably and before the first byte is fed, and
asks them before it serves again (`returning_master.py`). A slave is known by its broker id; its
address is that of its last hello.

`complete_to` stands in the file while the master does not run and stopped in order: then its log
had everything at that moment, and fewer slaves need to be asked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from sparrowmq.disk.atomic_file import AtomicFile
from sparrowmq.disk.disk import Disk
from sparrowmq.store.layout import OWN_DIR

SLAVES = f"{OWN_DIR}/slaves.json"


@dataclass(frozen=True, slots=True)
class KnownSlave:
    """A slave, and how far it was when it was last heard from. Only operators look at that: it is
    saved only when the file is saved for another reason, so a kill may lose it."""

    address: str
    acknowledged: int = 0
    """The slave had everything before this log offset."""
    heard_ms: int = 0
    """The time of day at that moment; 0 if not known."""


class _Saved(msgspec.Struct):
    slaves: dict[str, str]
    complete_to: int | None = None
    heard: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    """Log offset and time, by broker id."""


class KnownSlaves:
    """Slaves by broker id, as the file has them."""

    def __init__(self, disk: Disk) -> None:
        self._file = AtomicFile(disk, SLAVES)
        self._slaves: dict[int, KnownSlave] = {}
        self.complete_to: int | None = None

    @staticmethod
    def load(disk: Disk) -> "KnownSlaves":
        """The contents of the file; no slaves if there is none. Raises OSError, ValueError."""
        known = KnownSlaves(disk)
        data = known._file.read()
        if data is not None:
            saved = msgspec.json.decode(data, type=_Saved)
            known._slaves = {
                int(key): KnownSlave(address, *saved.heard.get(key, (0, 0)))
                for key, address in saved.slaves.items()
            }
            known.complete_to = saved.complete_to
        return known

    @property
    def slaves(self) -> Mapping[int, KnownSlave]:
        """All of them, by broker id."""
        return self._slaves

    @property
    def addresses(self) -> Mapping[int, str]:
        """host:port of each."""
        return {broker_id: slave.address for broker_id, slave in self._slaves.items()}

    def note_heard(self, broker_id: int, acknowledged: int, heard_ms: int) -> None:
        """How far a known slave was at that time; saved with the next change."""
        known = self._slaves[broker_id]
        self._slaves[broker_id] = replace(known, acknowledged=acknowledged, heard_ms=heard_ms)

    def remember(self, broker_id: int, address: str) -> None:
        """Remember a slave, or its new address; durable when this returns. Raises DiskFull or
        OSError, having changed nothing."""
        known = self._slaves.get(broker_id, KnownSlave(address))
        if known.address != address or broker_id not in self._slaves:
            self._change(self._slaves | {broker_id: replace(known, address=address)})

    def forget(self, broker_id: int) -> None:
        """A slave is gone for good; durable when this returns. Raises DiskFull, or OSError, having
        changed nothing."""
        self._change({key: slave for key, slave in self._slaves.items() if key != broker_id})

    def _change(self, slaves: dict[int, KnownSlave]) -> None:
        before, self._slaves = self._slaves, slaves
        try:
            self._save()
        except BaseException:
            self._slaves = before
            raise

    def _save(self) -> None:
        known = sorted(self._slaves.items())
        saved = _Saved(
            {str(key): slave.address for key, slave in known},
            self.complete_to,
            {str(key): (slave.acknowledged, slave.heard_ms) for key, slave in known},
        )
        self._file.replace(msgspec.json.encode(saved))

    def master_starts(self) -> None:
        """From now on the log may lose its end, or grows as a slave's. Raises DiskFull, OSError."""
        if self.complete_to is not None:
            self.complete_to = None
            self._save()

    def master_stopped(self, log_end: int) -> None:
        """The log is durable up to its end. Raises DiskFull, or OSError."""
        if self._slaves:
            self.complete_to = log_end
            self._save()

    def reachable_needed(self, copies_wanted: int) -> int:
        """How many slaves have to answer so that one of them has every acknowledged message."""
        confirming = min(copies_wanted - 1, len(self._slaves))
        return len(self._slaves) - confirming + 1 if confirming > 0 else 0
