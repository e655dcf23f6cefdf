"""Errors of the store.

StoreError
├── StoreStopped     a write or sync failed, nothing more may be acknowledged: stop
├── StoreCorrupted   our own files are damaged and cannot be repaired automatically: stop
└── MessageTooLarge  it does not fit into a log file

AppendsHeld is a DiskFull: nothing is lost, and the appending code tries again later.
"""

from sparrowmq.disk.errors import DiskFull


class StoreError(Exception):
    """The store cannot do what was requested."""


class AppendsHeld(DiskFull):
    """The owner of the store allows no appends for now: `reason` says why.

    Handled like a full disk, because all code that appends knows how to wait for one.
    """

    def __init__(self, reason: str) -> None:
        super().__init__("", 0, reason)
        self.reason = reason


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


class MessageTooLarge(StoreError):
    """A record, or a batch that must stay together, has `size_bytes` where `limit_bytes` fit."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"{size_bytes} bytes to store at once, at most {limit_bytes} fit")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
