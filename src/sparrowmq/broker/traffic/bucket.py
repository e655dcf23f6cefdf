"""A token bucket of one second: it decides what a quota admits, exact to the message."""

_WHOLE = 1000
"""A token in the bucket's internal unit: `rate` tokens a second are `rate` units a millisecond, so
that whole numbers suffice and nothing is rounded."""


class Bucket:
    """Holds a second's worth of tokens at most, and gets `rate` a second.

    A send is admitted if there is one token, and takes as many as it counts: a batch, or a message
    that is larger than what is left, may overdraw. Nothing else is admitted until that is paid off.
    Times are monotonic.
    """

    __slots__ = ("_at_ms", "_full", "_level", "counts_bytes", "rate", "taken")

    def __init__(self, rate: int, now_ms: int, *, counts_bytes: bool = False) -> None:
        self.rate = rate
        self.counts_bytes = counts_bytes
        """Whether a token is a byte instead of a message."""
        self.taken = 0
        """All tokens taken so far."""
        self._full = self._level = rate * _WHOLE
        self._at_ms = now_ms

    def admit(self, tokens: int, now_ms: int) -> bool:
        """Whether a request is admitted; if so, it has taken its tokens."""
        # `_refill` inlined: this runs for every send to a topic with a quota.
        level, passed_ms = self._level, now_ms - self._at_ms
        if passed_ms:
            self._at_ms = now_ms
            if passed_ms > 0:
                level += passed_ms * self.rate
                if level > self._full:
                    level = self._full
        if level < _WHOLE:
            self._level = level
            return False
        self._level = level - tokens * _WHOLE
        self.taken += tokens
        return True

    def give_back(self, tokens: int) -> None:
        """Return the tokens of an admitted request that did not happen."""
        self.take(-tokens)

    def take(self, tokens: int) -> None:
        """Take tokens without asking for admission."""
        self._level -= tokens * _WHOLE
        self.taken += tokens

    def wait_ms(self, now_ms: int) -> int:
        """How long until a request is admitted; 0 if one would be now."""
        self._refill(now_ms)
        missing = _WHOLE - self._level
        return -(-missing // self.rate) if missing > 0 else 0

    def tokens(self, now_ms: int) -> int:
        """How many tokens are left; negative after an overdraft."""
        self._refill(now_ms)
        return self._level // _WHOLE

    def used(self, now_ms: int) -> int:
        """How many of a second's tokens are used; after an overdraft, more than the whole."""
        return self.rate - self.tokens(now_ms)

    def is_full(self, now_ms: int) -> bool:
        """Whether the bucket is as full as a new one."""
        self._refill(now_ms)
        return self._level >= self._full

    def change_rate(self, rate: int, now_ms: int) -> None:
        """Change the limit. What is left or owed keeps its number of tokens or its time, whichever
        is less: the new limit inherits neither a burst nor a debt of the old size."""
        self._refill(now_ms)
        same_time = self._level * rate // self.rate
        self._level = min(self._level, same_time, key=abs)
        self.rate, self._full = rate, rate * _WHOLE

    def _refill(self, now_ms: int) -> None:
        passed_ms = now_ms - self._at_ms
        if passed_ms > 0:
            self._level = min(self._full, self._level + passed_ms * self.rate)
        self._at_ms = now_ms
