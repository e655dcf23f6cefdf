"""Which queue the next message goes to: in turn, avoiding the broker that failed last."""

from collections.abc import Callable, Sequence

from sparrowmq.client.checks import check_function, check_kind
from sparrowmq.protocol.java_hash import java_hash
from sparrowmq.protocol.message import Message, MessageQueue

Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""The user's choice among a topic's queues."""
Chooser = Callable[[Sequence[MessageQueue]], MessageQueue]
"""Picks the queue of one message that is not sent in turn."""


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


def chooser(
    message: Message, queue: MessageQueue | None, key: str | None, selector: Selector | None
) -> Chooser | None:
    """How a message's queue is chosen; None: in turn.

    Raises ValueError for what is no message, more than one wish, or a queue of another topic.
    """
    check_kind("message", message, Message)
    if (queue is not None) + (key is not None) + (selector is not None) > 1:
        raise ValueError("queue, key and selector exclude each other, give one")
    if queue is not None:
        _check_queue(queue, message.topic)
        return lambda _: queue
    if selector is not None:
        check_function("selector", selector)
        return lambda queues: _check_queue(selector(queues, message), message.topic)
    key = message.sharding_key if key is None else key
    if key is None:
        return None
    check_kind("key", key, str)
    return lambda queues: queue_for_key(queues, key)


def queue_on(broker_name: str, queues: Sequence[MessageQueue]) -> MessageQueue:
    """A queue of that broker, or any when it has none."""
    return next((queue for queue in queues if queue.broker_name == broker_name), queues[0])


def _check_queue(queue: MessageQueue, topic: str) -> MessageQueue:
    check_kind("queue", queue, MessageQueue)
    if queue.topic != topic:
        raise ValueError(f"the queue belongs to topic {queue.topic}, the message to {topic}")
    return queue
