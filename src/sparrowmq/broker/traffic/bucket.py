"""A token bucket of one second: what a quota lets pass, exact to the message."""

_WHOLE = 1000
"""A token in the bucket's own unit: `rate` tokens a second are `rate` of these a millisecond, so
that whole numbers suffice and nothing is rounded."""


class Bucket:
    """Holds a second's worth of tokens at most, and gets `rate` a second.

    Something passes if there is one token, and takes as many as it counts: a batch, or a message
    that is larger than what is left, may overdraw. Nothing else passes until that is paid.
    Times are monotonic.
    """

    __slots__ = ("_at_ms", "_level", "rate")

    def __init__(self, rate: int, now_ms: int) -> None:
        self.rate = rate
        self._level = rate * _WHOLE
        self._at_ms = now_ms

    def wait_ms(self, now_ms: int) -> int:
        """How long until something passes; 0 if it does now."""
        self._refill(now_ms)
        missing = _WHOLE - self._level
        return -(-missing // self.rate) if missing > 0 else 0

    def take(self, tokens: int) -> None:
        """Something passed."""
        self._level -= tokens * _WHOLE

    def tokens(self, now_ms: int) -> int:
        """How many are there; negative after an overdraft."""
        self._refill(now_ms)
        return self._level // _WHOLE

    def used(self, now_ms: int) -> int:
        """How many of a second's tokens are gone, more than there are after an overdraft."""
        return self.rate - self.tokens(now_ms)

    def is_full(self, now_ms: int) -> bool:
        """Whether it is as good as a new one."""
        self._refill(now_ms)
        return self._level >= self.rate * _WHOLE

    def change_rate(self, rate: int, now_ms: int) -> None:
        """Another limit. What is left or owed stays the same number of tokens or the same time,
        whichever is less: neither a burst nor a debt of the old size is left to the new limit."""
        self._refill(now_ms)
        same_time = self._level * rate // self.rate
        self._level = min(self._level, same_time, key=abs)
        self.rate = rate

    def _refill(self, now_ms: int) -> None:
        passed_ms = now_ms - self._at_ms
        if passed_ms > 0:
            full = self.rate * _WHOLE
            level = self._level + passed_ms * self.rate
            self._level = level if level < full else full
        self._at_ms = now_ms
