"""Properties of many records at once: `name \\x01 value \\x02 …` cut up by numpy and Arrow.

All properties are copied one after the other, one scan finds the separators, and one array
laid over the bytes has every name and every value as an element:

    KEYS \\x01 o-1 \\x02 TAGS \\x01 created \\x02          names are elements 0, 4, 8 …
    0    1    2   3    4    5    6       7              values are elements 2, 6, 10 …

Rows that do not fit (a lone separator, an empty value, a duplicate name) are marked and left to the
slow path.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrowmq.spark.decode.record_heads import Flags, Longs

Ints = npt.NDArray[np.int32]
_BITS = 62
"""Names that fit one bit each into a signed 64-bit number."""


class Properties:
    """The properties of some rows. `odd` marks the rows that cannot be read here."""

    def __init__(self, texts: pa.StringArray) -> None:
        self._rows = len(texts)
        row_ends = np.frombuffer(texts.buffers()[1], np.int32)[: self._rows + 1]
        self._text = texts.buffers()[2]
        raw = np.frombuffer(self._text, np.uint8)[: row_ends[-1]] if self._text else _NO_BYTES
        name_ends = np.flatnonzero(raw == 1)
        value_ends = np.flatnonzero(raw == 2)
        self.odd: Flags | None = None
        if not _are_regular(name_ends, value_ends, row_ends):
            self.odd = _irregular_rows(texts)
            return
        self._cells = _cells(name_ends, value_ends, self._text)
        count = len(value_ends)
        self._first: Ints = np.searchsorted(value_ends, row_ends).astype(np.int32)
        """The index of each row's first property; one more at the end."""
        self.names: pa.StringArray = self._cells.take(pa.array(np.arange(0, 4 * count, 4)))
        encoded = self.names.dictionary_encode()
        self._codes: npt.NDArray[np.int64] = encoded.indices.to_numpy().astype(np.int64)
        self._code_of = {name: code for code, name in enumerate(encoded.dictionary.to_pylist())}
        twice = _rows_with_a_name_twice(self._codes, self._first, len(self._code_of))
        if twice.any():
            self.odd = twice

    def as_map(self, kind: pa.MapType) -> pa.MapArray:
        """All properties, as one map per row."""
        values = self._cells.take(pa.array(np.arange(2, 4 * len(self._codes), 4)))
        offsets = pa.array(self._first)
        built = pa.MapArray.from_arrays(offsets, self.names, values)
        return built.cast(kind) if built.type != kind else built

    def values_of(self, name: str) -> pa.StringArray:
        """One property of every row, null where a row has none."""
        code = self._code_of.get(name)
        if code is None:
            return pa.nulls(self._rows, pa.string())
        where = np.flatnonzero(self._codes == code)
        cells = where * 4 + 2
        if len(where) == self._rows:  # once in every row, as rows with duplicates are excluded
            return self._cells.take(pa.array(cells))
        of_row = np.zeros(self._rows, np.int64)
        missing = np.ones(self._rows, np.bool_)
        rows = np.searchsorted(self._first, where, "right") - 1
        of_row[rows] = cells
        missing[rows] = False
        return self._cells.take(pa.array(of_row, mask=missing))


_NO_BYTES = np.zeros(0, np.uint8)


def _are_regular(name_ends: Longs, value_ends: Longs, row_ends: Ints) -> bool:
    """Whether separators alternate, nothing is empty, and every row ends with a value's."""
    if len(name_ends) != len(value_ends):
        return False
    if not len(value_ends):
        return bool(row_ends[-1] == 0)
    starts = np.empty_like(value_ends)
    starts[0] = 0
    starts[1:] = value_ends[:-1] + 1
    if not (np.all(starts < name_ends) and np.all(name_ends + 1 < value_ends)):
        return False
    at_ends = np.searchsorted(value_ends, row_ends[1:] - 1)
    at_ends = np.minimum(at_ends, len(value_ends) - 1)
    return bool(np.all((value_ends[at_ends] == row_ends[1:] - 1) | (row_ends[1:] == row_ends[:-1])))


def _cells(name_ends: Longs, value_ends: Longs, text: pa.Buffer | None) -> pa.StringArray:
    count = len(value_ends)
    bounds = np.zeros(4 * count + 1, np.int32)
    bounds[4::4] = value_ends + 1
    bounds[1::4] = name_ends
    bounds[2::4] = name_ends + 1
    bounds[3::4] = value_ends
    return pa.StringArray.from_buffers(4 * count, pa.py_buffer(bounds), text or pa.py_buffer(b""))


def _rows_with_a_name_twice(codes: Longs, first: Ints, names: int) -> Flags:
    twice = np.zeros(len(first) - 1, np.bool_)
    filled = np.flatnonzero(first[1:] > first[:-1])
    if not len(filled):
        return twice
    if names > _BITS:
        rows = np.repeat(np.arange(len(first) - 1), np.diff(first))
        keys = rows * names + codes
        _, index, counts = np.unique(keys, return_index=True, return_counts=True)
        twice[rows[index[counts > 1]]] = True
        return twice
    bits = np.left_shift(np.int64(1), codes)
    begins = first[:-1][filled]
    # The sum of different bits is their union; a bit that comes twice carries over.
    sums = np.add.reduceat(bits, begins)
    twice[filled] = sums != np.bitwise_or.reduceat(bits, begins)
    return twice


def _irregular_rows(texts: pa.StringArray) -> Flags:
    return np.array([not _is_regular(text) for text in texts.to_pylist()], np.bool_)


def _is_regular(text: str) -> bool:
    if not text:
        return True
    pairs = text.split("\x02")
    return pairs.pop() == "" and all(
        len(pair.split("\x01")) == 2 and all(pair.split("\x01")) for pair in pairs
    )
