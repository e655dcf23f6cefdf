"""When messages were stored, by their place in a queue."""

from sparrowmq.protocol.sys_flag import BORN_HOST_V6
from sparrowmq.store.store import Store

_SYS_FLAG_AT = 36
_TIME_AT, _TIME_AT_V6 = 56, 68
_HEAD_BYTES = _TIME_AT_V6 + 8


def stored_at(store: Store, topic: str, queue_id: int, offset: int) -> int:
    """The store time of one message of a queue; -1 if it is not there."""
    for log_offset, _, _ in store.units(topic, queue_id, offset, 1):
        return log_time(store, log_offset)
    return -1


def log_time(store: Store, log_offset: int) -> int:
    """The store time of the record at a log offset; -1 if there is none."""
    if not store.min_log_offset <= log_offset < store.max_log_offset:
        return -1
    # Only the head: a group's statistics look at a message of every queue
    head = store.read_log(log_offset, _HEAD_BYTES)
    if len(head) < _HEAD_BYTES:
        return -1
    sys_flag = int.from_bytes(head[_SYS_FLAG_AT : _SYS_FLAG_AT + 4], "big")
    at = _TIME_AT_V6 if sys_flag & BORN_HOST_V6 else _TIME_AT
    return int.from_bytes(head[at : at + 8], "big", signed=True)
