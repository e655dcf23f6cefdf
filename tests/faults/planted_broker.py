"""A broker with a planted bug: now and then it acknowledges a message before it is appended."""

from itertools import count

from sparrowmq.cli.main import main
from sparrowmq.store.messages import PutMessage, Stored
from sparrowmq.store.store import Store

_append = Store.append
_number = count(1)


def _acknowledge_before_append(store: Store, put: PutMessage, now_ms: int) -> Stored:
    if next(_number) % 500:
        return _append(store, put, now_ms)
    queue_offset = store.max_offset(put.topic, put.queue_id)
    return Stored(store.max_log_offset, 100, queue_offset, now_ms)


if __name__ == "__main__":
    setattr(Store, "append", _acknowledge_before_append)  # noqa: B010 - mypy forbids assigning
    main()
