"""Which queue the next message goes to: in turn, avoiding the broker that failed last."""

from collections.abc import Callable, Sequence

from sparrowmq.protocol.java_hash import java_hash
from sparrowmq.protocol.message import MessageQueue


class RoundRobin:
    """Takes queues in turn. The index advances over skipped queues as well."""

    __slots__ = ("_index",)

    def __init__(self, start: int = 0) -> None:
        self._index = start

    def next(self, queues: Sequence[MessageQueue], avoid: str | None = None) -> MessageQueue:
        """The next queue that is not on broker `avoid`; if all are, the next one."""
        first = None
        for _ in queues:
            queue = queues[self._index % len(queues)]
            self._index += 1
            if queue.broker_name != avoid:
                return queue
            first = first or queue
        assert first is not None, "there is no queue"
        return first

    def next_on(
        self, queues: Sequence[MessageQueue], is_usable: Callable[[str], bool]
    ) -> MessageQueue | None:
        """The next queue on a broker that is usable; None when no broker is."""
        for _ in queues:
            queue = queues[self._index % len(queues)]
            self._index += 1
            if is_usable(queue.broker_name):
                return queue
        return None


def queue_for_key(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """The same key always lands in the same queue, as long as the queues stay the same.

    Java's SelectMessageQueueByHash puts the key there too, so that producers in both languages
    keep one order.
    """
    return queues[abs(java_hash(key)) % len(queues)]
