"""Errors of the protocol package: invalid bytes from a peer or in a file.

    ProtocolError
    ├── FrameError       a frame's lengths are wrong: close the connection
    ├── HeaderError      a header is unreadable, or lacks what its type needs
    └── BodyError        a body, a message or its properties are not what they claim to be
        └── TooLarge     … or exceed one of our limits

Mistakes of a caller (an illegal topic name, a separator inside a property) raise an ordinary
ValueError.
"""

from sparrowmq.errors import SparrowMQError


class ProtocolError(SparrowMQError):
    """Bytes from outside are not what the protocol allows."""


class FrameError(ProtocolError):
    """The lengths of a frame cannot be right; nothing after it can be understood."""


class HeaderError(ProtocolError):
    """A frame is complete, but its header cannot be read."""


class BodyError(ProtocolError):
    """A body cannot be read: JSON, a message record, a batch, compressed data, an id."""


class TooLarge(BodyError):
    """Something exceeds `limit_bytes`; `size_bytes` is None if its total size is unknown."""

    def __init__(self, what: str, limit_bytes: int, size_bytes: int | None = None) -> None:
        size = f"more than {limit_bytes}" if size_bytes is None else str(size_bytes)
        super().__init__(f"{what} of {size} bytes, at most {limit_bytes} allowed")
        self.limit_bytes = limit_bytes
        self.size_bytes = size_bytes
