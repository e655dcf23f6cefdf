"""Whether the store accepts messages, and the reason if it does not.

```
stopped    a write or a sync failed      until the store is opened again
no space   the device was full           until a tick succeeds
over mark  the disk is fuller than       until it is emptier than `force_clean_ratio`
           `refuse_ratio`
held       the broker asked for it       until it lets go; a master's bytes are still accepted
```

They are independent: a tick that finds space again must not admit messages to a store that has
stopped. So each is set separately, and `refusal` is the first that applies. Appends read one
attribute, `must_check`, which is computed when something changes.
"""

from collections.abc import Callable

from sparrowmq.disk.errors import DiskFull
from sparrowmq.store.errors import AppendsHeld, StoreStopped


class Admission:
    """Shared by the parts that append and the parts that detect a reason to refuse."""

    __slots__ = (
        *("_guard", "_held", "_no_space", "_over_mark", "_stopped"),
        *("must_check", "refusal"),
    )

    def __init__(self) -> None:
        self._stopped: StoreStopped | None = None
        self._no_space: DiskFull | None = None
        self._over_mark: DiskFull | None = None
        self._held: dict[str, AppendsHeld] = {}
        """By holder: when one lets go, another's hold must still refuse messages."""
        self.refusal: StoreStopped | DiskFull | None = None
        """Raised instead of accepting a message; None while messages are accepted."""
        self._guard: Callable[[], None] | None = None
        self.must_check = False
        """Whether an append has to call `check` first."""

    def check(self) -> None:
        """Raises StoreStopped or DiskFull while messages are refused."""
        if self._guard is not None:
            self._guard()
        if self.refusal is not None:
            # One error object for all refusals: drop the traceback of the previous one.
            raise self.refusal.with_traceback(None)

    def check_copying(self) -> None:
        """`check` for a master's bytes, which a slave appends although it accepts no messages."""
        reason = self._stopped or self._no_space or self._over_mark
        if reason is not None:
            raise reason.with_traceback(None)

    @property
    def has_stopped(self) -> bool:
        """Whether messages are refused until the store is opened again."""
        return self._stopped is not None

    @property
    def lacks_space(self) -> bool:
        """Whether the last attempt to write found the device full."""
        return self._no_space is not None

    @property
    def is_over_mark(self) -> bool:
        """Whether messages are refused because the disk is nearly full."""
        return self._over_mark is not None

    def stop(self, reason: str) -> None:
        """Refuse messages permanently; the first reason stays."""
        if self._stopped is None:
            self._stopped = StoreStopped(reason)
            self._decide()

    def write_failed(self, error: OSError) -> StoreStopped:
        """Stop, as it is unknown what reached the disk; returns the error to raise."""
        self.stop(f"writing failed: {error}")
        assert self._stopped is not None
        return self._stopped

    def set_no_space(self, error: DiskFull | None) -> None:
        """Note that the device is full, or with None that it has space again."""
        self._no_space = error
        self._decide()

    def set_over_mark(self, error: DiskFull | None) -> None:
        """Note that the disk is fuller than the mark, or with None that it no longer is."""
        self._over_mark = error
        self._decide()

    def hold(self, holder: str, reason: str | None) -> None:
        """Refuse messages until the same holder calls this with None."""
        self._held.pop(holder, None)
        if reason is not None:
            self._held[holder] = AppendsHeld(reason)
        self._decide()

    def set_guard(self, guard: Callable[[], None] | None) -> None:
        """Call this before every message, which it may `hold`. Without one that costs nothing."""
        self._guard = guard
        self._decide()

    def _decide(self) -> None:
        held = next(iter(self._held.values()), None)
        self.refusal = self._stopped or self._no_space or self._over_mark or held
        self.must_check = self.refusal is not None or self._guard is not None
