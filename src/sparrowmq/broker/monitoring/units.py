"""Units of consume queues as numbers: sizes and tag codes of many messages at once."""

from typing import Any

import numpy as np

from sparrowmq.store.consume_queue import BLANK_UNIT_SIZE

_UNIT = np.dtype([("log_offset", ">i8"), ("size", ">i4"), ("tag", ">i8")])
UNIT_BYTES = _UNIT.itemsize
Numbers = np.ndarray[Any, np.dtype[Any]]


def sizes(units: bytes) -> Numbers:
    """The size of each message; blank units, whose messages are gone, are left out."""
    found = np.frombuffer(units, _UNIT)["size"]
    kept: Numbers = found[found != BLANK_UNIT_SIZE]
    return kept


def count_tags(units: bytes, codes: Numbers) -> int:
    """How many of the units have one of these tag codes."""
    return int(np.isin(np.frombuffer(units, _UNIT)["tag"], codes).sum())


def first_log_offset(units: bytes) -> int | None:
    """The log offset of the first message; None if there is none."""
    found = np.frombuffer(units[:UNIT_BYTES], _UNIT)
    if not len(found) or found["size"][0] == BLANK_UNIT_SIZE:
        return None
    return int(found["log_offset"][0])
