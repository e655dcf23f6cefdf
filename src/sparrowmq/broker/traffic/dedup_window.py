"""Which messages a topic has stored lately, by their identity.

```
oldest ──────────────────────────────────────► newest
 id, log offset │ id, log offset │ …             at most `rule.ids`
└── bucket ─────┴── bucket ───────┘              over when its youngest is `rule.time_ms` old
```

Times are kept by bucket, a five-hundredth of the window each: an identity is remembered for the
whole of its time, and for at most that much longer. No I/O, and the time is told by a clock that
only goes forward.
"""

from collections import deque

from sparrowmq.protocol.dedup import DedupRule

_BUCKETS = 500


class DedupWindow:
    """The identities of one topic. Whether one is known is one look into a dictionary."""

    def __init__(self, rule: DedupRule) -> None:
        self._rule = rule
        self._bucket_ms = rule.time_ms // _BUCKETS
        self._offsets: dict[str, int] = {}
        self._order: deque[str] = deque()
        self._order_offsets: deque[int] = deque()
        """Whose turn it is to be forgotten. One that was forgotten before its turn is still in it,
        and remembered again it is in it twice: only the offset says which one is meant."""
        self._buckets: deque[list[int]] = deque()
        """When a bucket began and when its youngest came, and how many it has."""
        self.cut = 0
        """Identities that were forgotten before their time, because there were too many."""
        self.duplicates = 0
        """Messages that were not stored again."""

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def rule(self) -> DedupRule:
        """How much is remembered."""
        return self._rule

    @property
    def span_ms(self) -> int:
        """How long ago the oldest came, as the youngest did."""
        return self._buckets[-1][1] - self._buckets[0][0] if self._buckets else 0

    def find(self, identity: str, now_ms: int) -> int | None:
        """The log offset of the first message with this identity; None if it is not known."""
        buckets = self._buckets
        if buckets and buckets[0][1] + self._rule.time_ms <= now_ms:
            self.expire(now_ms)
        return self._offsets.get(identity)

    def add(self, identity: str, log_offset: int, now_ms: int) -> None:
        """A message was stored that was not known."""
        self._offsets[identity] = log_offset
        self._order.append(identity)
        self._order_offsets.append(log_offset)
        buckets = self._buckets
        if buckets and now_ms - buckets[-1][0] <= self._bucket_ms:
            last = buckets[-1]
            last[1] = max(last[1], now_ms)
            last[2] += 1
        else:
            buckets.append([now_ms, now_ms, 1])
        if len(self._order) > self._rule.ids:
            self.expire(now_ms)
            self.cut_to(self._rule.ids)

    def forget(self, identity: str) -> None:
        """A message will never be delivered: it may be sent again."""
        self._offsets.pop(identity, None)

    def expire(self, now_ms: int) -> None:
        """Forget what is too old."""
        buckets, before_ms = self._buckets, now_ms - self._rule.time_ms
        while buckets and buckets[0][1] <= before_ms:
            self._drop(buckets.popleft()[2])

    def cut_to(self, ids: int) -> None:
        """Forget the oldest until so many are left."""
        while (more := len(self._order) - ids) > 0:
            bucket = self._buckets[0]
            dropped = min(more, bucket[2])
            self.cut += self._drop(dropped)
            bucket[2] -= dropped
            if not bucket[2]:
                self._buckets.popleft()

    def _drop(self, count: int) -> int:
        offsets, dropped = self._offsets, 0
        for _ in range(count):
            identity, log_offset = self._order.popleft(), self._order_offsets.popleft()
            if offsets.get(identity) == log_offset:
                del offsets[identity]
                dropped += 1
        return dropped
