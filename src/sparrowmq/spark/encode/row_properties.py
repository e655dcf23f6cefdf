"""The properties of many rows at once, as RocketMQ stores them: `name 0x01 value 0x02 …`."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparrowmq.protocol.delay import MAX_DELAY_LEVEL
from sparrowmq.protocol.properties import (
    DELAY_LEVEL,
    KEY_SEPARATOR,
    KEYS,
    SHARDING_KEY,
    SYSTEM_PROPERTIES,
    TAGS,
    TIMER_DELIVER_MS,
)
from sparrowmq.spark.schema import ColumnError

_NOT_COPIED = pa.array(sorted(SYSTEM_PROPERTIES))
_EMPTY = b""
_NAME_END = b"\x01"
_VALUE_END = b"\x02"


def binary(column: pa.Array) -> pa.Array:
    """A column of texts or bytes, as bytes with 32-bit offsets."""
    return column.cast(pa.binary())


def values_of(column: pa.Array) -> tuple[memoryview, npt.NDArray[np.int64]]:
    """The bytes of a binary array, and where each value begins, plus the end of the last one."""
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return memoryview(data) if data is not None else memoryview(b""), ends.astype(np.int64)


def property_column(name: str, column: str, values: pa.Array) -> pa.Array:
    """`name` with each row's value, nothing where it is null or empty. Raises ColumnError."""
    text = binary(values)
    check_separators(column, text)
    head = name.encode() + _NAME_END
    made = pc.binary_join_element_wise(head, text, _VALUE_END, _EMPTY, null_handling="emit_null")
    is_set = pc.greater(pc.binary_length(text), 0)
    return pc.if_else(pc.fill_null(is_set, False), made, pa.scalar(_EMPTY, pa.binary()))


def tags_property(tags: pa.Array) -> pa.Array:
    """Each row's tag."""
    for tag in _distinct(tags):
        if tag != tag.strip() or "||" in tag or tag == "*":
            raise ColumnError(
                "tags",
                f"{tag!r} is not a tag, must be one word without || and blanks around it",
            )
    return property_column(TAGS, "tags", tags)


def keys_property(keys: pa.Array) -> pa.Array:
    """Each row's keys: a text may hold several separated by blanks, a list has one per element."""
    if pa.types.is_list(keys.type) or pa.types.is_large_list(keys.type):
        elements = keys.flatten()
        if elements.null_count:
            raise ColumnError("keys", "an element is null, each has to be a text")
        if pc.any(pc.match_substring_regex(elements, r"^$|\s")).as_py():
            raise ColumnError("keys", "an element is empty or holds a blank, which separates keys")
        # Spark declares that array('a') has no null elements, and Arrow cannot join such lists.
        keys = pc.binary_join(keys.cast(pa.list_(pa.string())), KEY_SEPARATOR)
    return property_column(KEYS, "keys", keys)


def own_properties(properties: pa.Array, *, has_sharding_key: bool) -> pa.Array:
    """The application's properties of each row.

    Names that belong to RocketMQ are left out, so that what was read can be written again: tags
    and keys have their own columns, the rest describes the message that was read.
    """
    ends = properties.offsets.to_numpy()
    # A slice keeps the children of the whole array.
    names = properties.keys[ends[0] : ends[-1]]
    values = properties.items[ends[0] : ends[-1]]
    keep = pc.invert(pc.is_in(names, _NOT_COPIED))
    if has_sharding_key:
        keep = pc.and_(keep, pc.not_equal(names, SHARDING_KEY))
    _check_pairs(names.filter(keep), values.filter(keep))
    pairs = pc.binary_join_element_wise(
        binary(names), _NAME_END, binary(values), _VALUE_END, _EMPTY, null_handling="replace"
    )
    kept = pc.if_else(keep, pairs, pa.scalar(_EMPTY, pa.binary()))
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(ends - ends[0]), kept), _EMPTY)
    return pc.if_else(properties.is_valid(), joined, pa.scalar(_EMPTY, pa.binary()))


def own_sharding_keys(properties: pa.Array) -> pa.Array | None:
    """The sharding key among the properties of each row; None if no row has one."""
    ends = properties.offsets.to_numpy()
    is_key = pc.equal(properties.keys[ends[0] : ends[-1]], SHARDING_KEY)
    if not pc.any(is_key).as_py():
        return None
    places = np.flatnonzero(is_key.to_numpy(zero_copy_only=False)) + ends[0]
    place_of = np.full(len(properties), -1)
    place_of[np.searchsorted(ends, places, "right") - 1] = places
    keys = properties.items.take(pa.array(place_of, mask=place_of < 0))
    return pc.if_else(properties.is_valid(), keys, pa.scalar(None, keys.type))


def _check_pairs(names: pa.Array, values: pa.Array) -> None:
    if values.null_count:
        name = names.filter(values.is_null())[0]
        raise ColumnError("properties", f"the value of {name.as_py()!r} is null, must be a text")
    for texts in (names, values):
        check_separators("properties", binary(texts))
        # Consumers in every language skip such a pair.
        if pc.any(pc.equal(pc.binary_length(texts), 0)).as_py():
            raise ColumnError("properties", "a name or value is empty, must have a character")


def sharding_property(keys: pa.Array) -> pa.Array:
    """Each row's sharding key."""
    return property_column(SHARDING_KEY, "shardingKey", keys)


def delay_property(levels: pa.Array) -> pa.Array:
    """Each row's delay level; 0 means no delay."""
    wrong = levels.filter(pc.or_(pc.less(levels, 0), pc.greater(levels, MAX_DELAY_LEVEL)))
    if len(wrong):
        raise ColumnError(
            "delayLevel",
            f"is {wrong[0].as_py()} in a row, must be 0 to {MAX_DELAY_LEVEL} (1 s to 2 h), or use"
            " the column deliverTime",
        )
    chosen = pc.if_else(pc.equal(levels, 0), pa.scalar(None, levels.type), levels)
    return property_column(DELAY_LEVEL, "delayLevel", chosen.cast(pa.string()))


def deliver_property(times: pa.Array) -> pa.Array:
    """Each row's delivery time, in milliseconds since 1970."""
    ms = pc.cast(times, pa.timestamp("ms", times.type.tz), safe=False).cast(pa.int64())
    if pc.any(pc.less_equal(ms, 0)).as_py():
        raise ColumnError("deliverTime", "is before 1970 in a row")
    return property_column(TIMER_DELIVER_MS, "deliverTime", ms.cast(pa.string()))


def check_separators(column: str, text: pa.Array) -> None:
    """Raise ColumnError if a value contains bytes that separate properties."""
    data, ends = values_of(text)
    used = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
    if len(used) and bool(np.any(np.isin(used, (1, 2)))):
        raise ColumnError(column, "a value holds \\x01 or \\x02, which separate properties")


def _distinct(column: pa.Array) -> list[Any]:
    return [value for value in pc.unique(column).to_pylist() if value is not None]
