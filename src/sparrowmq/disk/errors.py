"""Errors of the disk.

DiskError
├── DiskFull             no space: report it, stay readable, try again
│   └── NoDescriptors    no more files can be opened: handled like a full disk
└── StoreLocked          another process has this directory open
"""


class DiskError(Exception):
    """The disk cannot do what was requested; nothing was lost."""


class DiskFull(DiskError):
    """The file system has too little room: `size_bytes` more in `path` do not fit."""

    def __init__(self, path: str, size_bytes: int, text: str = "") -> None:
        super().__init__(text or f"no space for {size_bytes} bytes in {path}")
        self.path = path
        self.size_bytes = size_bytes


class NoDescriptors(DiskFull):
    """The process, or the machine, has too many files open to open `path`.

    Handled like a full disk: nothing is lost, and it ends when other files are closed.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path, 0, f"{path} cannot be opened: too many open files")


class StoreLocked(DiskError):
    """Another process has opened the store at `path`."""

    def __init__(self, path: str) -> None:
        super().__init__(f"another process uses the store in {path}; stop it first")
        self.path = path
