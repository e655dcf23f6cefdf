"""When a queue is not pulled for a while, and why."""

from dataclasses import dataclass, replace

from sparrowmq.client.checks import MAX_LONG, check_whole
from sparrowmq.client.group.process_queue import ProcessQueue

OFF = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """How much of a queue may wait for its handler."""

    messages: int = 1_000
    size_bytes: int = 100 * 1024 * 1024
    span: int = 2_000
    """From the oldest to the newest offset; guards progress that one slow message holds back."""
    topic_messages: int = OFF
    """Shared out over all queues a consumer holds; -1 is off. Replaces `messages` when set."""
    topic_mib: int = OFF
    """The same for mebibytes."""

    def __post_init__(self) -> None:
        for name in ("messages", "size_bytes", "span"):
            check_whole(name, getattr(self, name), 1, MAX_LONG)
        for name in ("topic_messages", "topic_mib"):
            if getattr(self, name) != OFF:
                check_whole(name, getattr(self, name), 1, MAX_LONG)


_MIB = 1024 * 1024


def shared_out(limits: FlowLimits, queues: int) -> FlowLimits:
    """The limits of one queue when so many are held: a topic's limit is divided among them all."""
    queues = max(1, queues)
    shared = limits
    if limits.topic_messages != OFF:
        shared = replace(shared, messages=max(1, limits.topic_messages // queues))
    if limits.topic_mib != OFF:
        shared = replace(shared, size_bytes=max(1, limits.topic_mib // queues) * _MIB)
    return shared


def reason_to_wait(queue: ProcessQueue, limits: FlowLimits, *, is_orderly: bool = False) -> str:
    """Why the next pull has to wait; empty when it need not."""
    if len(queue) > limits.messages:
        return f"{len(queue)} messages wait for the handler, at most {limits.messages} may"
    if queue.size_bytes > limits.size_bytes:
        return f"{queue.size_bytes} bytes wait for the handler, at most {limits.size_bytes} may"
    if not is_orderly and queue.span > limits.span:
        return f"offsets in work span {queue.span}, at most {limits.span} may"
    return ""
