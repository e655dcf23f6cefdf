"""The keys of many messages at once: one text each, split where Python's `str.split` would."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_BLANK = 0x20
_LAST_ASCII = 0x7E


def split_keys(joined: pa.StringArray, kind: pa.ListType) -> pa.ListArray:
    """The keys of each row; an empty list for null. No text is empty: such a property is none."""
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
    """The same with offsets that begin at 0, and nothing but its own bytes."""
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
