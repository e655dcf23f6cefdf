"""Reads of groups that have a quota: at most what is left of it, or nothing yet."""

import asyncio

import msgspec

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.pull_filter import PullFilter
from sparrowmq.broker.traffic.group_quota import GroupQuota
from sparrowmq.protocol.headers.pull import PullMessage
from sparrowmq.store.messages import QueueRead, ReadStatus
from sparrowmq.store.store import ColdRead


def within_quota(broker: Broker, group: str, accepts: PullFilter) -> PullFilter:
    """The filter itself, or one that also obeys the quota of the group."""
    quota = broker.watched.quotas.get(group)
    return accepts if quota is None else LimitedFilter(accepts, quota)


class LimitedFilter(PullFilter):
    """A filter whose reads count against the quota. A held queue reads as if it had nothing new, so
    that pulls wait as they do for messages."""

    __slots__ = ("_quota",)

    def __init__(self, accepts: PullFilter, quota: GroupQuota) -> None:
        super().__init__(accepts.tag_codes, accepts.record)
        self._quota = quota

    def read(self, broker: Broker, header: PullMessage, offset: int) -> QueueRead | ColdRead:
        """Read messages up to the quota; nothing new if it is used up."""
        quota, key = self._quota, (header.topic, header.queue_id)
        most = quota.allowance(key)
        asked = header
        if not 1 <= header.max_msg_nums <= most:
            asked = msgspec.structs.replace(header, max_msg_nums=max(1, most))
        found = super().read(broker, asked, offset)
        if isinstance(found, QueueRead) and found.status is not ReadStatus.FOUND:
            return found  # without messages there is nothing to hold
        if most > 0:
            if isinstance(found, ColdRead):
                return _CountedLoad(found, quota)
            quota.take(found.count, found.size)
            return found
        quota.hold(key, broker.arrivals)
        low, high = broker.store.visible_range(*key)
        return QueueRead(ReadStatus.OFFSET_OVERFLOW_ONE, offset, low, high)


class _CountedLoad(ColdRead):
    """A read from the device that counts when it is done."""

    __slots__ = ("_cold", "_loop", "_quota")

    def __init__(self, cold: ColdRead, quota: GroupQuota) -> None:
        self._cold = cold
        self._quota = quota
        self._loop = asyncio.get_running_loop()

    def load(self) -> QueueRead:
        found = self._cold.load()
        # Workers are other threads; buckets are the loop's.
        self._loop.call_soon_threadsafe(self._quota.take, found.count, found.size)
        return found
