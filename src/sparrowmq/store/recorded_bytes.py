"""The contents of a file on a RecordingDisk, sector by sector."""

from random import Random

from sparrowmq.store.disk import Bytes

SECTOR = 512


class RecordedBytes:
    """The contents of a file as they are, and what was in each sector changed since the sync."""

    def __init__(self, data: bytearray | None = None) -> None:
        self.data = data if data is not None else bytearray()
        self.synced_size = len(self.data)
        self._before: dict[int, bytes] = {}
        self.allocated: set[int] = set()

    def write(self, offset: int, data: Bytes) -> None:
        """Change bytes, growing the file if needed."""
        end = offset + len(data)
        self._remember(offset, end)
        if end > len(self.data):
            self.data.extend(bytes(end - len(self.data)))
        self.data[offset:end] = data

    def resize(self, size: int) -> None:
        """Cut, or grow with zeros."""
        if size < len(self.data):
            self._remember(size, len(self.data))
            del self.data[size:]
            self.allocated = {sector for sector in self.allocated if sector * SECTOR < size}
        else:
            self.data.extend(bytes(size - len(self.data)))

    def _remember(self, start: int, end: int) -> None:
        for sector in range(start // SECTOR, -(-min(end, self.synced_size) // SECTOR)):
            if sector not in self._before:
                at = sector * SECTOR
                self._before[sector] = bytes(self.data[at : min(at + SECTOR, self.synced_size)])
        # Sectors behind the durable end had nothing: their loss leaves zeros.
        for sector in range(max(start, self.synced_size) // SECTOR, -(-end // SECTOR)):
            self._before.setdefault(sector, b"")

    def sync(self) -> None:
        """A power cut does not lose anything written so far."""
        self._before.clear()
        self.synced_size = len(self.data)

    @property
    def unsynced(self) -> int:
        """How many sectors a power cut may lose."""
        return len(self._before)

    def crashed(self, rng: Random) -> "RecordedBytes":
        """What a power cut leaves: of the changed sectors any subset, and an old or new length."""
        size = rng.choice((self.synced_size, len(self.data), len(self.data)))
        if size != self.synced_size and rng.random() < 0.3:
            low, high = sorted((self.synced_size, len(self.data)))
            size = rng.randint(low, high)
        data = bytearray(self.data[:size])
        data.extend(bytes(size - len(data)))
        share = rng.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        for sector, old in sorted(self._before.items()):
            # Bytes that were only cut off are there again when the cut did not arrive.
            is_lost = rng.random() >= share
            at = sector * SECTOR if is_lost else max(sector * SECTOR, len(self.data))
            end = min((sector + 1) * SECTOR, size)
            if at < end:
                data[at:end] = old.ljust(SECTOR, b"\x00")[at % SECTOR :][: end - at]
        after = RecordedBytes(data)
        after.allocated = set(self.allocated)
        return after

    def copy(self) -> "RecordedBytes":
        """The same, not yet durable changes included."""
        same = RecordedBytes(bytearray(self.data))
        same.synced_size = self.synced_size
        same._before = dict(self._before)
        same.allocated = set(self.allocated)
        return same
