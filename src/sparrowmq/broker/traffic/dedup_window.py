"""The window of a topic: the messages it has stored lately, by identity.

```
oldest ──────────────────────────────────────► newest
 id, log offset │ id, log offset │ …             at most `rule.ids`
└── bucket ─────┴── bucket ───────┘              over when its youngest is `rule.time_ms` old
```

Times are kept by bucket, a five-hundredth of the window each: an identity is remembered for the
whole of its time, and for at most that much longer. No I/O; time comes from a clock that only goes
forward.
"""

from collections import deque

from sparrowmq.protocol.dedup import DedupRule

_BUCKETS = 500


class TopicWindow:
    """The identities of one topic. A check is one look-up in a dictionary."""

    def __init__(self, rule: DedupRule) -> None:
        self._rule = rule
        self._bucket_ms = rule.time_ms // _BUCKETS
        self._offsets: dict[str, int] = {}
        self._order: deque[str] = deque()
        self._order_offsets: deque[int] = deque()
        """The order in which identities are forgotten. One that was forgotten early is still in it,
        and twice if it was remembered again: only the offset distinguishes the two."""
        self._buckets: deque[list[int]] = deque()
        """For each bucket: when it began, when its youngest came, and how many it has."""
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
        """The time between the oldest and the youngest."""
        return self._buckets[-1][1] - self._buckets[0][0] if self._buckets else 0

    def find(self, identity: str, now_ms: int) -> int | None:
        """The log offset of the first message with this identity; None if it is not known."""
        buckets = self._buckets
        if buckets and buckets[0][1] + self._rule.time_ms <= now_ms:
            self.expire(now_ms)
        return self._offsets.get(identity)

    def add(self, identity: str, log_offset: int, now_ms: int) -> None:
        """Remember a message that was stored and not known."""
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
        """Forget identities that are too old."""
        buckets, before_ms = self._buckets, now_ms - self._rule.time_ms
        while buckets and buckets[0][1] <= before_ms:
            self._drop(buckets.popleft()[2])

    def cut_to(self, ids: int) -> None:
        """Forget the oldest until only `ids` are left."""
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
