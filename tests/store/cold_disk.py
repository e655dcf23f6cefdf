"""A disk whose files are not in memory, so that every read has to wait for the device."""

from sparrowmq.disk.disk import DiskFile
from sparrowmq.testing.recording_disk import RecordingDisk


class ColdDisk(RecordingDisk):
    """Nothing is in memory: what was not kept by the store itself has to be waited for.

    `asked_ahead` has what the device was asked for ahead: path, from where, to where.
    """

    is_cold = True

    def __init__(self) -> None:
        super().__init__()
        self.asked_ahead: list[tuple[str, int, int]] = []

    def open(self, path: str, *, create: bool = False, write: bool = True) -> DiskFile:
        file = super().open(path, create=create, write=write)
        file.read_cached = (  # type: ignore[method-assign]
            lambda offset, length: None if self.is_cold else file.read(offset, length)
        )
        file.read_ahead = (  # type: ignore[method-assign]
            lambda offset, length: self.asked_ahead.append((path, offset, offset + length))
        )
        return file
