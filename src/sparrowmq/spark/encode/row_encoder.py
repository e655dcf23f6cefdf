"""Rows to messages, a whole Arrow batch at once: the only Python per row is its CRC.

A message in a batch send, as `protocol/batch.py` draws it:

    total size 4 | 0 4 | 0 4 | flag 4 | body size 4, body | properties size 2, properties
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparrowmq.protocol.crc import crc32
from sparrowmq.protocol.java import java_hash
from sparrowmq.protocol.names import is_retry_topic, send_fault
from sparrowmq.protocol.properties import MAX_PROPERTIES_BYTES, UNIQUE_KEY
from sparrowmq.spark.encode.row_properties import (
    binary,
    delay_property,
    deliver_property,
    keys_property,
    own_properties,
    own_sharding_keys,
    sharding_property,
    tags_property,
    values_of,
)
from sparrowmq.spark.schema import ColumnError, ColumnPlaces

BATCHED_HEAD_BYTES = 22
"""The size of a message in a batch without its body and properties."""

UNSHARDED = -1

_HEAD = np.dtype([("size", ">u4"), ("zero", ">u8"), ("flag", ">u4"), ("body", ">u4")])


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """The rows of one Arrow batch, ready to be sent. All arrays have one element per row."""

    topics: list[str]
    topic_of: npt.NDArray[np.int64]
    """Each row's index into `topics`."""
    hashes: npt.NDArray[np.int64]
    """The absolute value of the sharding key's hash, UNSHARDED without a key."""
    alone: npt.NDArray[np.bool_]
    """Rows that cannot go in a batch: delayed ones, and those of retry topics."""
    bodies: pa.Array
    properties: pa.Array
    messages: pa.Array
    """The encoded messages, ready to go into a batch."""


class RowEncoder:
    """Encodes the Arrow batches of one task. Raises ColumnError for rows that cannot be sent."""

    def __init__(
        self,
        positions: ColumnPlaces,
        topic: str | None,
        keys: RowKeys,
        max_message_bytes: int,
        *,
        shard_by_property: bool = True,
    ) -> None:
        self._positions = positions
        self._topic = topic
        self._keys = keys
        self._max_message_bytes = max_message_bytes
        self._shard_by_property = shard_by_property

    def encode(self, batch: pa.RecordBatch) -> EncodedRows:
        """All rows of a batch, checked before the first is sent."""
        columns = {name: batch.column(at) for name, at in self._positions.items()}
        bodies = self._bodies(columns["body"])
        topics, topic_of = self._topics(columns, len(batch))
        properties = self._with_keys(
            bodies, _properties(columns, len(batch)), columns.get("uniqueId")
        )
        _check_sizes(properties, bodies, self._max_message_bytes)
        is_retry = np.array([is_retry_topic(topic) for topic in topics], np.bool_)
        return EncodedRows(
            topics=topics,
            topic_of=topic_of,
            hashes=_hashes(self._sharding_keys(columns), len(batch)),
            alone=_delayed(columns, len(batch)) | is_retry[topic_of],
            bodies=bodies,
            properties=properties,
            messages=_messages(bodies, properties),
        )

    def _bodies(self, column: pa.Array) -> pa.Array:
        if column.null_count:
            raise ColumnError("body", f"{_null_in(column)}, must have a value")
        bodies = binary(column)
        if pc.any(pc.equal(pc.binary_length(bodies), 0)).as_py():
            raise ColumnError("body", "is empty in a row, must have at least 1 byte")
        return bodies

    def _topics(
        self, columns: dict[str, pa.Array], rows: int
    ) -> tuple[list[str], npt.NDArray[np.int64]]:
        if self._topic is not None:
            return [self._topic], np.zeros(rows, np.int64)
        column = columns["topic"]
        if column.null_count:
            raise ColumnError("topic", f"{_null_in(column)}; fill it or set the option topic")
        encoded = column.dictionary_encode()
        topics: list[str] = encoded.dictionary.to_pylist()
        for topic in topics:
            if (fault := send_fault(topic)) is not None:
                raise ColumnError("topic", fault)
        return topics, encoded.indices.to_numpy().astype(np.int64)

    def _sharding_keys(self, columns: dict[str, pa.Array]) -> pa.Array | None:
        """Each row's sharding key; without the column, the one that the row was read with."""
        if "shardingKey" in columns:
            return columns["shardingKey"]
        if "properties" in columns and self._shard_by_property:
            return own_sharding_keys(columns["properties"])
        return None

    def _with_keys(self, bodies: pa.Array, properties: pa.Array, own: pa.Array | None) -> pa.Array:
        """Each row's unique id, its own or made from its content, followed by its properties."""
        content = pc.binary_join_element_wise(bodies, properties, b"")
        keys = self._keys.next(row_crcs(*values_of(content)))
        if own is not None:
            keys = pc.coalesce(_own_keys(own), keys)
        return pc.binary_join_element_wise(keys, properties, b"")


def _null_in(column: pa.Array) -> str:
    return f"is null in {column.null_count} {'row' if column.null_count == 1 else 'rows'}"


def _own_keys(column: pa.Array) -> pa.Array:
    """The property with each row's own id; null for rows without one."""
    legal = pc.match_substring_regex(column, "^[^\\s\\x01\\x02]{1,255}$")
    if not pc.all(pc.fill_null(legal, True)).as_py():
        raise ColumnError("uniqueId", "is blank, too long or has blanks in a row; use 32 digits")
    return pc.binary_join_element_wise(_KEY_HEAD, binary(column), b"\x02", b"")


def _properties(columns: dict[str, pa.Array], rows: int) -> pa.Array:
    if {"delayLevel", "deliverTime"} <= columns.keys():
        _check_one_delay(columns["delayLevel"], columns["deliverTime"])
    parts = [
        part(columns[name])
        for name, part in (
            ("tags", tags_property),
            ("keys", keys_property),
            ("shardingKey", sharding_property),
            ("delayLevel", delay_property),
            ("deliverTime", deliver_property),
        )
        if name in columns
    ]
    if "properties" in columns:
        own = own_properties(columns["properties"], has_sharding_key="shardingKey" in columns)
        parts.append(own)
    if not parts:
        return pa.repeat(pa.scalar(b"", pa.binary()), rows)
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, b"")


def _check_one_delay(levels: pa.Array, times: pa.Array) -> None:
    if pc.any(pc.and_(pc.greater(levels, 0), pc.is_valid(times))).as_py():
        raise ColumnError("deliverTime", "is set in a row that has a delayLevel too, give one")


def _delayed(columns: dict[str, pa.Array], rows: int) -> npt.NDArray[np.bool_]:
    delayed = np.zeros(rows, np.bool_)
    if "delayLevel" in columns:
        level = pc.fill_null(pc.greater(columns["delayLevel"], 0), False)
        delayed |= level.to_numpy(zero_copy_only=False)
    if "deliverTime" in columns:
        delayed |= columns["deliverTime"].is_valid().to_numpy(zero_copy_only=False)
    return delayed


def _hashes(sharding_keys: pa.Array | None, rows: int) -> npt.NDArray[np.int64]:
    if sharding_keys is None:
        return np.full(rows, UNSHARDED, np.int64)
    encoded = sharding_keys.dictionary_encode()
    # An empty key counts as no key, just as it is not stored as a property.
    hashes = [abs(java_hash(key)) if key else UNSHARDED for key in encoded.dictionary.to_pylist()]
    indices: npt.NDArray[np.int32] = pc.fill_null(encoded.indices, len(hashes)).to_numpy()
    return np.array([*hashes, UNSHARDED], np.int64)[indices]


def _check_sizes(properties: pa.Array, bodies: pa.Array, max_message_bytes: int) -> None:
    largest = pc.max(pc.binary_length(properties)).as_py() or 0
    if largest > MAX_PROPERTIES_BYTES:
        raise ColumnError(
            "properties",
            f"{largest} bytes in a row, with keys, tags and id, at most {MAX_PROPERTIES_BYTES}"
            " are allowed",
        )
    largest = pc.max(pc.binary_length(bodies)).as_py() or 0
    if largest > max_message_bytes:
        raise ColumnError(
            "body", f"{largest} bytes in a row, at most {max_message_bytes} are allowed"
        )


def _messages(bodies: pa.Array, properties: pa.Array) -> pa.Array:
    rows = len(bodies)
    body_sizes = pc.binary_length(bodies).to_numpy()
    property_sizes = pc.binary_length(properties).to_numpy()
    heads = np.zeros(rows, _HEAD)
    heads["size"] = body_sizes + property_sizes + BATCHED_HEAD_BYTES
    heads["body"] = body_sizes
    return pc.binary_join_element_wise(
        _fixed(heads.view(np.uint8), _HEAD.itemsize, rows),
        bodies,
        _fixed(property_sizes.astype(">u2").view(np.uint8), 2, rows),
        properties,
        b"",
    )


def _fixed(data: npt.NDArray[np.uint8], size: int, rows: int) -> pa.Array:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(data))]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), rows, buffers).cast(pa.binary())


# ---- unique ids of rows

_KEY_HEAD = f"{UNIQUE_KEY}\x01".encode()

_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)

_DIGITS = np.concatenate([np.repeat(_HEX, 16)[:, None], np.tile(_HEX, 16)[:, None]], axis=1)
"""Two digits for each byte."""

KEY_PROPERTY_BYTES = len(_KEY_HEAD) + 32 + 1


class RowKeys:
    """Unique ids for the rows of one partition of one write: the same whenever Spark repeats it.

        write and partition 8 | row in its partition 4 | CRC of the row 4        in upper-case hex

    The id becomes the message's UNIQ_KEY, which consumers and the source show as msgId. A task that
    Spark repeats, or a micro-batch that it repeats after a crash, sends its rows under the same
    ids, so that readers can drop the copies. The CRC is for rows that arrive in a different order
    the second time, as after a shuffle: without it two different rows would share an id, and a
    reader would drop one of them.
    """

    def __init__(self, write_id: str, partition_id: int) -> None:
        digest = blake2b(f"{write_id} {partition_id}".encode(), digest_size=8)
        self._stem = np.frombuffer(_KEY_HEAD + digest.hexdigest().upper().encode(), np.uint8)
        self._rows = 0

    def next(self, crcs: npt.NDArray[np.uint32]) -> pa.Array:
        """The property with the id, for one row per CRC."""
        count = len(crcs)
        rows = np.arange(self._rows, self._rows + count).astype(np.uint32)
        self._rows += count
        numbers = np.stack([rows, crcs], axis=1).astype(">u4")
        text = np.empty((count, KEY_PROPERTY_BYTES), np.uint8)
        stem_end = len(self._stem)
        text[:, :stem_end] = self._stem
        text[:, stem_end:-1] = _DIGITS[numbers.view(np.uint8)].reshape(count, 16)
        text[:, -1] = 2
        return pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(KEY_PROPERTY_BYTES), count, [None, pa.py_buffer(text)]
        ).cast(pa.binary())


def row_crcs(data: memoryview, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """The CRC of every piece of `data`; `ends` begins with the start of the first."""
    pieces = pairwise(ends.tolist())
    return np.array([crc32(data[start:end]) for start, end in pieces], np.uint32)
