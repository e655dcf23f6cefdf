"""A quota in use: what it admits now, and how much it admitted and refused lately."""

from collections import deque

from sparrowmq.broker.traffic.bucket import Bucket
from sparrowmq.protocol.limits import Quota, Scope

_USE_S = 10
"""Use is shown over this many seconds."""
_MINUTE_S = 60
_QUIET_MS = 10_000
"""Refusals that are further apart belong to different episodes."""

_DOES = {
    Scope.TOPIC: "topic {} takes",
    Scope.PRODUCER_GROUP: "producer group {} may send",
    Scope.CONSUMER_GROUP: "consumer group {} may get",
    Scope.CLIENT: "client {} may send",
}


class Buckets:
    """The buckets of one quota: for messages, for bytes, or for both."""

    __slots__ = ("bytes", "messages", "quota")

    def __init__(self, quota: Quota, now_ms: int) -> None:
        self.quota = quota
        self.messages: Bucket | None = (
            None if quota.messages is None else Bucket(quota.messages, now_ms)
        )
        self.bytes: Bucket | None = None
        if quota.bytes is not None:
            self.bytes = Bucket(quota.bytes, now_ms, counts_bytes=True)

    @property
    def row(self) -> tuple[Bucket, ...]:
        """The buckets that exist."""
        return tuple(each for each in (self.messages, self.bytes) if each is not None)

    def wait_ms(self, now_ms: int) -> int:
        """How long until a request is admitted; 0 if one would be now."""
        messages, size = self.messages, self.bytes
        wait_ms = 0 if messages is None else messages.wait_ms(now_ms)
        if size is not None:
            wait_ms = max(wait_ms, size.wait_ms(now_ms))
        return wait_ms

    def take(self, count: int, size_bytes: int) -> None:
        """Count messages that passed."""
        if self.messages is not None:
            self.messages.take(count)
        if self.bytes is not None:
            self.bytes.take(size_bytes)

    @property
    def taken(self) -> tuple[int, int]:
        """Messages and bytes that passed so far; 0 where there is no limit."""
        messages, size = self.messages, self.bytes
        return 0 if messages is None else messages.taken, 0 if size is None else size.taken

    def is_full(self, now_ms: int) -> bool:
        """Whether the buckets are as full as new ones."""
        return all(each.is_full(now_ms) for each in self.row)

    def change(self, quota: Quota, now_ms: int) -> None:
        """Change the limit, keeping what is left."""
        fresh = Buckets(quota, now_ms)
        if self.messages is not None and quota.messages is not None:
            self.messages.change_rate(quota.messages, now_ms)
            fresh.messages = self.messages
        if self.bytes is not None and quota.bytes is not None:
            self.bytes.change_rate(quota.bytes, now_ms)
            fresh.bytes = self.bytes
        self.quota, self.messages, self.bytes = quota, fresh.messages, fresh.bytes

    def used(self, now_ms: int) -> str:
        """Which limit is reached, and how much of it was used within a second."""
        parts = []
        if self.messages is not None and self.messages.wait_ms(now_ms):
            parts.append(f"{self.messages.used(now_ms):,} of {self.messages.rate:,} messages")
        if self.bytes is not None and self.bytes.wait_ms(now_ms):
            parts.append(f"{self.bytes.used(now_ms):,} of {self.bytes.rate:,} bytes")
        return " and ".join(parts)


class Refusals:
    """How much was refused: in total, in the last minute, and since when without a pause."""

    __slots__ = ("_last_ms", "_since_ms", "dropped", "total")

    def __init__(self) -> None:
        self.total = 0
        self.dropped = 0
        """Refused one-way sends, whose senders never learn of it."""
        self._since_ms = self._last_ms = -_QUIET_MS

    def add(self, count: int, now_ms: int, *, is_oneway: bool = False) -> None:
        """Count refused messages."""
        self.total += count
        if is_oneway:
            self.dropped += count
        if now_ms - self._last_ms >= _QUIET_MS:
            self._since_ms = now_ms
        self._last_ms = now_ms

    def lasting_ms(self, now_ms: int) -> int | None:
        """How long refusals have been going on; None if there were none lately."""
        if not self.total or now_ms - self._last_ms >= _QUIET_MS:
            return None
        return now_ms - self._since_ms


class Metered:
    """Anything that has a quota."""

    __slots__ = ("buckets", "name", "refusals", "scope")

    def __init__(
        self, scope: Scope, name: str, quota: Quota, refusals: Refusals, now_ms: int
    ) -> None:
        self.scope = scope
        self.name = name
        self.buckets = Buckets(quota, now_ms)
        self.refusals = refusals

    def refusal(self, now_ms: int, broker_name: str) -> str:
        """Why a request is refused: the quota, its use, and when to try again."""
        buckets = self.buckets
        return (
            f"{_DOES[self.scope].format(self.name)} {buckets.quota} on {broker_name} and"
            f" {buckets.used(now_ms)} are used; come back in {buckets.wait_ms(now_ms):,} ms"
        )


class Meter(Metered):
    """One quota with its figures. `tick` is called every second."""

    __slots__ = ("_samples",)

    def __init__(self, scope: Scope, name: str, quota: Quota, now_ms: int) -> None:
        super().__init__(scope, name, quota, Refusals(), now_ms)
        self._samples: deque[tuple[int, int, int, int]] = deque(
            [(now_ms, 0, 0, 0)], maxlen=_MINUTE_S + 1
        )
        """Times, each with the messages, bytes and refusals until then."""

    def tick(self, now_ms: int) -> None:
        """Record the current totals."""
        self._samples.append((now_ms, *self.buckets.taken, self.refusals.total))

    def use(self, now_ms: int) -> tuple[float, float]:
        """Recent messages and bytes a second; 0 where there is no limit."""
        since_ms, *before, _ = self._samples[max(-len(self._samples), -_USE_S - 1)]
        passed_s = max(1000, now_ms - since_ms) / 1000
        messages, size = (
            max(0, now - then) / passed_s
            for now, then in zip(self.buckets.taken, before, strict=True)
        )
        return messages, size

    @property
    def refused_last_minute(self) -> int:
        """Messages that were refused; for a consumer group, pulls that were held."""
        return self.refusals.total - self._samples[0][3]
