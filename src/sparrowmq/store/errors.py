"""Errors of the store.

StoreError
├── DiskFull         no space: answer, stay readable, try again
│   └── NoDescriptors    no more files can be opened: the same
├── StoreStopped     a write or sync failed, nothing may be acknowledged any more: stop
├── StoreCorrupted   our own files are wrong and cannot be repaired by themselves: stop
├── StoreLocked      another process has this directory open
└── MessageTooLarge  it does not fit into a log file
"""


class StoreError(Exception):
    """The store cannot do what it was asked for."""


class DiskFull(StoreError):
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


class StoreStopped(StoreError):
    """The store takes no more messages because of `reason`."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the store has stopped: {reason}")
        self.reason = reason


class StoreCorrupted(StoreError):
    """`path` is wrong at byte `position`."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} is damaged at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class StoreLocked(StoreError):
    """Another process has opened the store at `path`."""

    def __init__(self, path: str) -> None:
        super().__init__(f"another process uses the store in {path}; stop it first")
        self.path = path


class MessageTooLarge(StoreError):
    """A record, or a batch that has to stay together, of `size_bytes` where `limit_bytes` fit."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"{size_bytes} bytes to store at once, at most {limit_bytes} fit")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
