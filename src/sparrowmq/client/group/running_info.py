"""What a consumer reports to operators: settings, queues, rates of the last minute, stacks.

The property names are those of Java's clients, which RocketMQ's tools expect.
"""

import asyncio
import inspect
import sys
import traceback
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sparrowmq.client.group.held_queue import HeldQueue
from sparrowmq.client.group.membership import Membership
from sparrowmq.client.group.queue_ownership import FRESH_S
from sparrowmq.protocol.connections import ConsumerRunningInfo, ConsumeStatus, ProcessQueueInfo
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.rebalance_report import REBALANCE_PROPERTY

WINDOW_S = 60
_MS = 1000


@dataclass(slots=True)
class _Second:
    second: int
    pulls: int = 0
    pull_ms: float = 0.0
    pulled: int = 0
    calls: int = 0
    call_ms: float = 0.0
    done: int = 0
    failed: int = 0


class ConsumeRates:
    """How much a consumer pulls and consumes, as sums over the last minute. Counted per batch,
    never per message."""

    def __init__(self) -> None:
        self._topics: dict[str, deque[_Second]] = {}
        self._failed: dict[str, int] = {}
        self.has_consumed = False
        """Whether a handler call has ever ended."""

    def now_s(self) -> float:
        """The loop's time."""
        return asyncio.get_running_loop().time()

    def pulled(self, topic: str, count: int, started_s: float) -> None:
        """Count a pull that found this many messages."""
        now_s = self.now_s()
        second = self._second(topic, now_s)
        second.pulls += 1
        second.pull_ms += (now_s - started_s) * _MS
        second.pulled += count

    def consumed(self, topic: str, done: int, failed: int, started_s: float) -> None:
        """Count a handler call that ended."""
        self.has_consumed = True
        now_s = self.now_s()
        second = self._second(topic, now_s)
        second.calls += 1
        second.call_ms += (now_s - started_s) * _MS
        second.done += done
        second.failed += failed
        if failed:
            self._failed[topic] = self._failed.get(topic, 0) + failed

    def status(self, topic: str) -> ConsumeStatus:
        """A topic's figures of the last minute, and its failures since the start."""
        first = int(self.now_s()) - WINDOW_S
        seconds = [second for second in self._topics.get(topic, ()) if second.second > first]
        pulls = sum(second.pulls for second in seconds)
        calls = sum(second.calls for second in seconds)
        return ConsumeStatus(
            pull_rt=sum(second.pull_ms for second in seconds) / max(1, pulls),
            pull_tps=sum(second.pulled for second in seconds) / WINDOW_S,
            consume_rt=sum(second.call_ms for second in seconds) / max(1, calls),
            consume_ok_tps=sum(second.done for second in seconds) / WINDOW_S,
            consume_failed_tps=sum(second.failed for second in seconds) / WINDOW_S,
            consume_failed_msgs=self._failed.get(topic, 0),
        )

    def _second(self, topic: str, now_s: float) -> _Second:
        seconds = self._topics.get(topic)
        if seconds is None:
            seconds = self._topics[topic] = deque(maxlen=WINDOW_S)
        if not seconds or seconds[-1].second != int(now_s):
            seconds.append(_Second(int(now_s)))
        return seconds[-1]


_MIB = 1024 * 1024


def running_info(
    member: Membership, rates: ConsumeRates, *, with_stacks: bool
) -> ConsumerRunningInfo:
    """A snapshot."""
    settings, client = member.settings, member.client
    return ConsumerRunningInfo(
        properties={
            "PROP_NAMESERVER_ADDR": ";".join(client.config.name_servers),
            "PROP_CONSUME_TYPE": settings.consume_type.value,
            "PROP_CONSUMEORDERLY": str(settings.is_orderly).lower(),
            "PROP_THREADPOOL_CORE_SIZE": str(member.workers),
            "PROP_CONSUMER_START_TIMESTAMP": str(member.started_ms),
            "PROP_CLIENT_VERSION": "SPARROWMQ",
            "consumerGroup": settings.group,
            "messageModel": settings.model.value,
            "consumeFromWhere": settings.from_where.value,
            "allocateMessageQueueStrategy": settings.strategy.name,
            REBALANCE_PROPERTY: _rebalance(member),
        },
        subscription_set=member.subscriptions.all(),
        mq_table={queue: _queue_info(member, held) for queue, held in sorted(member.held.items())},
        status_table={topic: rates.status(topic) for topic in sorted(member.subscriptions.topics)},
        user_consumer_info={
            str(held.queue): f"not pulled now: {held.waits_for}"
            for held in member.held.values()
            if held.waits_for
        },
        jstack=_stacks() if with_stacks else None,
    )


def _rebalance(member: Membership) -> str:
    return member.ownership.log.report(member.settings.strategy.name).to_json().decode()


def offsets_of(member: Membership, topic: str) -> dict[MessageQueue, int]:
    """This member's progress in the queues that it holds of a topic."""
    offsets = {queue: member.offsets.get(queue) for queue in member.held if queue.topic == topic}
    return {queue: offset for queue, offset in offsets.items() if offset >= 0}


def _queue_info(member: Membership, held: HeldQueue) -> ProcessQueueInfo:
    now_s, now_ms = asyncio.get_running_loop().time(), member.client.clock()

    def at_ms(loop_s: float) -> int:
        return now_ms - round((now_s - loop_s) * 1000)

    queue = held.process_queue
    lock_age_s = member.client.sessions.now_s() - held.locked_s
    began_s = held.process_queue.oldest_start_s
    if began_s is None and held.consume_lock.locked():
        began_s = held.began_s
    has_lock = member.ownership.has_leases and lock_age_s <= FRESH_S
    return ProcessQueueInfo(
        commit_offset=max(0, member.offsets.get(held.queue)),
        cached_msg_min_offset=queue.progress if len(queue) else 0,
        cached_msg_max_offset=queue.newest_offset if len(queue) else 0,
        cached_msg_count=len(queue),
        cached_msg_size_mib=queue.size_bytes // _MIB,
        locked=has_lock,
        last_lock_timestamp=now_ms - round(lock_age_s * 1000) if member.ownership.has_leases else 0,
        dropped=held.is_dropped,
        last_pull_timestamp=at_ms(held.last_pull_s),
        last_consume_timestamp=at_ms(held.last_consume_s),
        running_since=None if began_s is None else at_ms(began_s),
    )


def _stacks() -> str:
    """Where every task and thread of the process is: the equivalent of Java's thread dump."""
    lines = []
    for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name()):
        lines.append(f"task {task.get_name()}")
        lines += [f"  {place}" for place in _awaits(task.get_coro())]
    for number, frame in sys._current_frames().items():
        lines.append(f"thread {number}")
        lines += [line.rstrip() for line in traceback.format_stack(frame)]
    return "\n".join(lines)


def _awaits(waiting: Any) -> Iterator[str]:
    """What a task is waiting for, from the outside in. A suspended task knows only its outermost
    frame; the others are found by following what each coroutine awaits."""
    while inspect.iscoroutine(waiting):
        frame = waiting.cr_frame
        if frame is not None:
            code = frame.f_code
            yield f"{code.co_qualname} ({code.co_filename}:{frame.f_lineno})"
        waiting = waiting.cr_await
