"""A token bucket of one second: it decides what a quota admits, exact to the message."""

from collections.abc import Iterable

_WHOLE = 1000
"""A token in the bucket's internal unit: `rate` tokens a second are `rate` units a millisecond, so
that whole numbers suffice and nothing is rounded."""


class Bucket:
    """Holds a second's worth of tokens at most, and gets `rate` a second.

    A send is admitted if there is one token, and takes as many as it counts: a batch, or a message
    that is larger than what is left, may overdraw. Nothing else is admitted until that is paid off.
    Times are monotonic.
    """

    __slots__ = ("_at_ms", "_full", "_level", "_poured", "counts_bytes", "rate")

    def __init__(self, rate: int, now_ms: int, *, counts_bytes: bool = False) -> None:
        self.rate = rate
        self.counts_bytes = counts_bytes
        """Whether a token is a byte instead of a message."""
        self._full = self._level = self._poured = rate * _WHOLE
        """`_poured`: all that it ever held, so that a send need not count what it takes."""
        self._at_ms = now_ms

    @property
    def taken(self) -> int:
        """All tokens taken so far."""
        return (self._poured - self._level) // _WHOLE

    def take(self, tokens: int) -> None:
        """Take tokens without asking for admission."""
        self._level -= tokens * _WHOLE

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
        same_time, before = self._level * rate // self.rate, self._level
        self._level = min(before, same_time, key=abs)
        self._poured += self._level - before
        self.rate, self._full = rate, rate * _WHOLE

    def _refill(self, now_ms: int) -> int:
        passed_ms = now_ms - self._at_ms
        if passed_ms > 0:
            before = self._level
            self._level = min(self._full, before + passed_ms * self.rate)
            self._poured += self._level - before
        self._at_ms = now_ms
        return self._level


def admit(buckets: tuple[Bucket, ...], messages: int, size_bytes: int, now_ms: int) -> bool:
    """Whether all of the buckets admit a request; if so, it has taken its tokens of each."""
    # One function for all, and few operations for each: a send may have six of them.
    units, bytes_units = messages * _WHOLE, size_bytes * _WHOLE
    for bucket in buckets:
        level = bucket._level if now_ms == bucket._at_ms else bucket._refill(now_ms)
        if level < _WHOLE:
            give_back(buckets[: buckets.index(bucket)], messages, size_bytes)
            return False
        bucket._level = level - (bytes_units if bucket.counts_bytes else units)
    return True


def give_back(buckets: Iterable[Bucket], messages: int, size_bytes: int) -> None:
    """Return the tokens of an admitted request that did not happen."""
    for bucket in buckets:
        bucket.take(-size_bytes if bucket.counts_bytes else -messages)
