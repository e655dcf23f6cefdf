"""Batch bodies: several messages of one topic in one send.

total size 4 | magic 0 4 | body CRC 0 4 | flag 4 | body size 4, body | properties size 2, properties
"""

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TypeAlias

from sparrowmq.protocol.errors import BodyError

BatchedMessage: TypeAlias = tuple[int, bytes, bytes]
"""Flag, body, and properties as stored in a record."""

BatchColumns: TypeAlias = tuple[Sequence[int], Sequence[bytes], Sequence[bytes]]
"""Flags, bodies and properties of all messages."""

_HEAD = struct.Struct(">iiiii")
_HEAD_SIZE = _HEAD.size
_PROPERTIES_SIZE = struct.Struct(">h")
_LEAST_SIZE = _HEAD_SIZE + _PROPERTIES_SIZE.size
_unpack_head = _HEAD.unpack_from
_unpack_total = struct.Struct(">i").unpack_from
_unpack_size = _PROPERTIES_SIZE.unpack_from


def encode_batch(messages: Iterable[BatchedMessage]) -> bytes:
    """The body of a batch send. Raises ValueError for properties over 32,767 bytes."""
    parts: list[bytes] = []
    for flag, body, properties in messages:
        if len(properties) > 0x7FFF:
            raise ValueError(f"properties of {len(properties)} bytes, at most 32767 allowed")
        size = _LEAST_SIZE + len(body) + len(properties)
        parts.append(_HEAD.pack(size, 0, 0, flag, len(body)))
        parts.append(body)
        parts.append(_PROPERTIES_SIZE.pack(len(properties)))
        parts.append(properties)
    return b"".join(parts)


def count_messages(data: bytes) -> int:
    """How many messages a batch body holds; what cannot be read counts as one."""
    at, end, count = 0, len(data), 0
    while end - at >= _LEAST_SIZE:
        (size,) = _unpack_total(data, at)
        if size < _LEAST_SIZE:
            break
        at += size
        count += 1
    return count or 1


def decode_columns(data: bytes) -> BatchColumns:
    """`decode_batch`, but as one column per part of the messages. Raises BodyError."""
    if len(data) >= _LEAST_SIZE:
        size, _, _, _, body_size = _unpack_head(data)
        properties_size = size - _LEAST_SIZE - body_size
        # Programs mostly send batches of messages of equal size: one format fits the whole body.
        if body_size >= 0 <= properties_size and not len(data) % size:
            shape = _shape(body_size, properties_size)
            sizes, flags, body_sizes, bodies, properties_sizes, properties = zip(
                *shape.iter_unpack(data), strict=True
            )
            count = len(sizes)
            if (
                sizes.count(size) == count
                and body_sizes.count(body_size) == count
                and properties_sizes.count(properties_size) == count
            ):
                return flags, bodies, properties
    messages = decode_batch(data)
    if not messages:
        return (), (), ()
    return tuple(zip(*messages, strict=True))  # type: ignore[return-value]  # three columns


@lru_cache(maxsize=64)
def _shape(body_size: int, properties_size: int) -> struct.Struct:
    return struct.Struct(f">i8xii{body_size}sh{properties_size}s")


def decode_batch(data: bytes) -> list[BatchedMessage]:
    """All messages of a batch body. Raises BodyError if a size does not fit."""
    messages: list[BatchedMessage] = []
    at, end = 0, len(data)
    try:
        while at < end:
            size, _, _, flag, body_size = _unpack_head(data, at)
            body_at = at + _HEAD_SIZE
            body_end = body_at + body_size
            (properties_size,) = _unpack_size(data, body_end)
            properties_at = body_end + 2
            next_at = properties_at + properties_size
            if next_at - at != size or next_at > end or body_size < 0 or properties_size < 0:
                raise BodyError(
                    f"batch message at {at}: total size {size}, body of {body_size} bytes,"
                    f" properties of {properties_size}, {end - at} bytes left"
                )
            messages.append((flag, data[body_at:body_end], data[properties_at:next_at]))
            at = next_at
    except struct.error as error:
        raise BodyError(
            f"batch message at {at}: its parts exceed the {end - at} bytes left"
        ) from error
    return messages
