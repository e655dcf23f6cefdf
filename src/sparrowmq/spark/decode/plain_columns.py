"""The columns of plain records, each built in one go by numpy and Arrow.

A Python loop over the records would cost microseconds per record and column; here the cost is a few
passes over memory. The price is that only common records fit: IPv4 hosts, no compression, regular
properties. `Decoder` sends the others down the slow path.
"""

from collections.abc import Callable
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparrowmq.protocol import properties as names
from sparrowmq.protocol.hosts import decode_host, format_address
from sparrowmq.spark.decode.properties import Properties
from sparrowmq.spark.decode.record_heads import Flags, Longs, Records

_MAX_MS = (2**63 - 1) // 1000

_HEX_DIGITS = np.array([f"{byte:02X}".encode() for byte in range(256)], "S2")


class NotPlain(Exception):
    """Some records need the slow path after all; `rows` marks them."""

    def __init__(self, rows: Flags) -> None:
        assert rows.any()
        super().__init__(f"{int(rows.sum())} records for the slow path")
        self.rows = rows


def topics_of(records: Records) -> pa.BinaryArray:
    """The topic of each record, as stored."""
    return _cut(records.data, records.topic_at, records.topic_end)


class PlainColumns:
    """The columns of some plain records, built on demand."""

    def __init__(self, records: Records, broker_name: str, schema: pa.Schema) -> None:
        self._records = records
        self._broker_name = broker_name
        self._schema = schema

    def batch(self) -> pa.RecordBatch:
        """All columns of the schema. Raises NotPlain for records that the slow path must read."""
        arrays = [_COLUMNS[name](self) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    @cached_property
    def _properties(self) -> Properties:
        records = self._records
        texts = _cut(records.data, records.properties_at, records.properties_end)
        properties = Properties(self._as_text(texts))
        if properties.odd is not None:
            raise NotPlain(properties.odd)
        return properties

    def _as_text(self, cells: pa.BinaryArray) -> pa.StringArray:
        try:
            return cells.cast(pa.string())
        except pa.ArrowInvalid:  # not UTF-8 somewhere; the slow path finds out where
            raise NotPlain(np.ones(len(self._records), np.bool_)) from None

    def topic(self) -> pa.StringArray:
        return self._as_text(topics_of(self._records))

    def broker_name(self) -> pa.StringArray:
        return pa.repeat(pa.scalar(self._broker_name, pa.string()), len(self._records))

    def body(self) -> pa.BinaryArray:
        return _cut(self._records.data, self._records.body_at, self._records.body_end)

    def number(self, name: str, kind: type[np.signedinteger]) -> pa.Array:
        return pa.array(self._records.head[name].astype(kind))

    def time(self, name: str) -> pa.TimestampArray:
        ms = self._records.head[name].astype(np.int64)
        # Times out of range, which no clock reports, must not wrap around.
        us = np.clip(ms, -_MAX_MS, _MAX_MS) * 1000
        return pa.array(us).view(pa.timestamp("us", tz="UTC"))

    def born_host(self) -> pa.StringArray:
        hosts = self._records.head["born_host"]
        # Few senders, many messages: each address is formatted once.
        if (hosts == hosts[0]).all():
            return pa.repeat(pa.scalar(_host_text(hosts[0]), pa.string()), len(hosts))
        # Deduplicated by hashing: sorting them all, as numpy would, takes ten times as long.
        encoded = pa.array(hosts).dictionary_encode()
        texts = pa.array([_host_text(host) for host in encoded.dictionary.to_numpy()])
        return texts.take(encoded.indices)

    def msg_id(self) -> pa.StringArray:
        ids = self._properties.values_of(names.UNIQUE_KEY)
        if not ids.null_count:
            return ids
        return pc.if_else(ids.is_valid(), ids, self._offset_ids())

    def _offset_ids(self) -> pa.StringArray:
        """Store host and log offset in hex, as `protocol.ids.offset_id` writes them."""
        head = self._records.head
        raw = np.empty((len(head), 16), np.uint8)
        raw[:, :8] = head["store_host"].copy().view(np.uint8).reshape(-1, 8)
        raw[:, 8:] = head["log_offset"].copy().view(np.uint8).reshape(-1, 8)
        ends = np.arange(0, 32 * len(head) + 1, 32, dtype=np.int32)
        digits = _HEX_DIGITS[raw].tobytes()
        return pa.StringArray.from_buffers(len(head), pa.py_buffer(ends), pa.py_buffer(digits))

    def tags(self) -> pa.StringArray:
        return self._properties.values_of(names.TAGS)

    def keys(self) -> pa.ListArray:
        kind = self._schema.field("keys").type
        return split_keys(self._properties.values_of(names.KEYS), kind)

    def properties(self) -> pa.MapArray:
        return self._properties.as_map(self._schema.field("properties").type)


_COLUMNS: dict[str, Callable[[PlainColumns], pa.Array]] = {
    "topic": PlainColumns.topic,
    "brokerName": PlainColumns.broker_name,
    "queueId": lambda columns: columns.number("queue_id", np.int32),
    "queueOffset": lambda columns: columns.number("queue_offset", np.int64),
    "msgId": PlainColumns.msg_id,
    "tags": PlainColumns.tags,
    "keys": PlainColumns.keys,
    "body": PlainColumns.body,
    "properties": PlainColumns.properties,
    "bornTimestamp": lambda columns: columns.time("born_timestamp"),
    "storeTimestamp": lambda columns: columns.time("store_timestamp"),
    "bornHost": PlainColumns.born_host,
    "reconsumeTimes": lambda columns: columns.number("reconsume_times", np.int32),
    "sysFlag": lambda columns: columns.number("sys_flag", np.int32),
}


def _cut(data: bytes, starts: Longs, ends: Longs) -> pa.BinaryArray:
    """The bytes from each start to its end, copied one after the other."""
    count = len(starts)
    bounds = np.empty(2 * count + 1, np.int32)
    bounds[:-1:2] = starts
    bounds[1::2] = ends
    bounds[-1] = len(data)
    # An array laid over the data, without copying, has the gaps as its odd elements; taking the
    # even ones is the only copy.
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    cells = pa.Array.from_buffers(pa.binary(), 2 * count, buffers)
    return cells.take(pa.array(np.arange(0, 2 * count, 2)))


def _host_text(host: np.uint64) -> str:
    return format_address(decode_host(host.tobytes()))


# ---- keys: one text for each message, split where Python's `str.split` would split it

_BLANK = 0x20

_LAST_ASCII = 0x7E


def split_keys(joined: pa.StringArray, kind: pa.ListType) -> pa.ListArray:
    """The keys of each row; an empty list for null. No text is empty: a property never is."""
    joined = _compact(joined)
    ends = np.frombuffer(joined.buffers()[1], np.int32)[: len(joined) + 1]
    text = joined.buffers()[2]
    raw = np.frombuffer(text, np.uint8)[: ends[-1]] if text else np.zeros(0, np.uint8)
    if not _is_ascii(raw) or not _is_single_spaced(raw, ends):
        # Unicode's blanks, or several in a row: rare, so Python decides.
        return pa.array([(text or "").split() for text in joined.to_pylist()], kind)
    # What lies between two blanks, or between a blank and a row's end, is one key.
    blanks = np.flatnonzero(raw == _BLANK)
    counts = (np.diff(ends) > 0) + np.diff(np.searchsorted(blanks, ends))
    first = np.zeros(len(joined) + 1, np.int32)
    np.cumsum(counts, out=first[1:])
    if not len(blanks):
        return _lists(first, joined.drop_null(), kind)
    keys = pc.list_flatten(pc.split_pattern(joined.drop_null(), " "))
    return _lists(first, keys, kind)


def _compact(joined: pa.StringArray) -> pa.StringArray:
    """A copy whose offsets begin at 0, and which holds only its own bytes."""
    if joined.offset == 0 and len(joined):
        return joined
    return pa.concat_arrays([joined, pa.array([], pa.string())]) if len(joined) else _EMPTY


_EMPTY = pa.StringArray.from_buffers(0, pa.py_buffer(bytes(4)), pa.py_buffer(b""))


def _is_ascii(raw: npt.NDArray[np.uint8]) -> bool:
    return bool(np.all((raw >= _BLANK) & (raw <= _LAST_ASCII)))


def _is_single_spaced(raw: npt.NDArray[np.uint8], ends: npt.NDArray[np.int32]) -> bool:
    blank = raw == _BLANK
    if not blank.any():
        return True
    edges = np.concatenate((ends[:-1][np.diff(ends) > 0], ends[1:][np.diff(ends) > 0] - 1))
    return not (blank[edges].any() or (blank[1:] & blank[:-1]).any())


def _lists(first: npt.NDArray[np.int32], keys: pa.StringArray, kind: pa.ListType) -> pa.ListArray:
    built = pa.ListArray.from_arrays(pa.array(first), keys)
    return built.cast(kind) if built.type != kind else built
