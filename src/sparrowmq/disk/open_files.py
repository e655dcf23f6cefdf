"""A bounded number of open files, the least recently used closed first."""

from collections import OrderedDict

from sparrowmq.disk.disk import Disk, DiskFile


class OpenFiles:
    """Opens files when they are needed; 8,000 consume queues would exhaust the descriptors."""

    def __init__(self, disk: Disk, limit: int, *, write: bool) -> None:
        self._disk = disk
        self._limit = limit
        self._write = write
        self._files: OrderedDict[str, DiskFile] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def get(self, path: str) -> DiskFile:
        """The file, opened if it is not. Raises FileNotFoundError, or OSError."""
        file = self._files.get(path)
        if file is not None:
            self._files.move_to_end(path)
            return file
        return self.put(path, self._disk.open(path, write=self._write))

    def put(self, path: str, file: DiskFile) -> DiskFile:
        """Add a file that was opened elsewhere."""
        self._files[path] = file
        if len(self._files) > self._limit:
            self._files.popitem(last=False)[1].close()
        return file

    def paths(self) -> list[str]:
        """Paths of all open files."""
        return list(self._files)

    def drop(self, path: str) -> None:
        """Close a file that is about to be removed or changed."""
        file = self._files.pop(path, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Close all."""
        for file in self._files.values():
            file.close()
        self._files.clear()
