"""A planted bug: a store that acknowledges messages which it does not store."""

from collections.abc import Callable
from itertools import count
from typing import Any

from sparrowmq.store.messages import PutMessage, Stored
from sparrowmq.store.store import Store


def plant_lying_store(
    patch: Callable[[Any, str, object], None],
    *,
    every: int,
    is_target: Callable[[PutMessage], bool] = lambda put: True,
) -> None:
    """Every store that is opened from now on lies about one in `every` appends.

    `patch` is `setattr`, or that of a monkeypatch.
    """
    open_store = Store.open
    numbers = count(1)

    def open_lying(*arguments: Any, **options: Any) -> Store:
        store = open_store(*arguments, **options)
        append = store.append

        def lie(put: PutMessage, now_ms: int) -> Stored:
            if next(numbers) % every or not is_target(put):
                return append(put, now_ms)
            queue_offset = store.max_offset(put.topic, put.queue_id)
            return Stored(store.max_log_offset, 0, queue_offset, now_ms)

        store.append = lie
        return store

    patch(Store, "open", staticmethod(open_lying))
