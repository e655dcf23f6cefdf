"""The base of all JSON bodies."""

from typing import ClassVar, Self

import msgspec

from sparrowmq.protocol.lenient_json import SLOW_LIMIT_BYTES, read_json, write_json


class Body(msgspec.Struct, frozen=True, rename="camel"):
    """A value that travels as a JSON body; its Python names become camelCase on the wire."""

    SLOW_LIMIT_BYTES: ClassVar[int] = SLOW_LIMIT_BYTES
    """For JSON that only Java writes; tables keyed by queues, which always are, allow more."""

    def to_json(self) -> bytes:
        """Compact JSON that Java and Go clients read."""
        return write_json(self)

    @classmethod
    def from_json(cls, data: bytes | bytearray | memoryview) -> Self:
        """Read what Java, Go or we wrote. Unknown fields are ignored; raises BodyError."""
        return read_json(data, cls, cls.SLOW_LIMIT_BYTES)
