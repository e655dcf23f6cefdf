"""Entries of the timer queue as whole numbers: time in the upper, offset in the lower 64 bits.

They sort by time. The highest bit of the offset says that an entry is a recall.
"""

RECALL = 1 << 63
_OFFSET = RECALL - 1


def entry_of(time_ms: int, queue_offset: int, *, is_recall: bool = False) -> int:
    """An entry as one number that sorts by time."""
    return time_ms << 64 | (RECALL if is_recall else 0) | queue_offset


def time_of(entry: int) -> int:
    """When an entry is due."""
    return entry >> 64


def offset_of(entry: int) -> int:
    """Where its message lies in the timer queue."""
    return entry & _OFFSET


def is_recall(entry: int) -> bool:
    """Whether it takes a message back rather than delivering one."""
    return bool(entry & RECALL)
