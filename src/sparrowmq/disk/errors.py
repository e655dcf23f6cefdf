"""Errors of the disk.

DiskError
├── DiskFull             no space: answer, stay readable, try again
│   └── NoDescriptors    no more files can be opened: the same
└── StoreLocked          another process has this directory open
"""


class DiskError(Exception):
    """The disk cannot do what it was asked for, and lost nothing by it."""


class DiskFull(DiskError):
    """The file system has no room, or too little left: `size_bytes` more in `path` do not fit."""

    def __init__(self, path: str, size_bytes: int, text: str = "") -> None:
        super().__init__(text or f"no space for {size_bytes} bytes in {path}")
        self.path = path
        self.size_bytes = size_bytes


class NoDescriptors(DiskFull):
    """The process, or the machine, has too many files open to open `path`.

    It is met as a full disk is: nothing is lost by it, and it ends when others are closed.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path, 0, f"{path} cannot be opened: too many open files")


class StoreLocked(DiskError):
    """Another process has opened the store at `path`."""

    def __init__(self, path: str) -> None:
        super().__init__(f"another process uses the store in {path}; stop it first")
        self.path = path
