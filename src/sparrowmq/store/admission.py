"""Whether the store takes messages, and the reason when it does not.

```
stopped    a write or a sync failed      until the store is opened again
no space   the device was full           until a tick succeeds
over mark  the disk is fuller than       until it is emptier than `force_clean_ratio`
           `refuse_ratio`
held       the broker says so            until it says otherwise; a master's bytes are still taken
```

They are independent: a tick that finds space again must not admit messages to a store that has
stopped. So each is set on its own and `refusal` is the first that holds. It is one attribute,
decided when something changes and not when it is asked for, because every append asks.
"""

from sparrowmq.disk.errors import DiskFull
from sparrowmq.store.errors import AppendsHeld, StoreStopped


class Admission:
    """Shared by the parts that append and the parts that detect a reason to refuse."""

    __slots__ = ("_held", "_no_space", "_over_mark", "_stopped", "refusal")

    def __init__(self) -> None:
        self._stopped: StoreStopped | None = None
        self._no_space: DiskFull | None = None
        self._over_mark: DiskFull | None = None
        self._held: dict[str, AppendsHeld] = {}
        """By holder: one that lets go must not admit messages that another one holds."""
        self.refusal: StoreStopped | DiskFull | None = None
        """Raised instead of taking a message; None while messages are taken."""

    def check(self) -> None:
        """Raises StoreStopped or DiskFull while messages are refused."""
        if self.refusal is not None:
            # One error object for all refusals: drop the traceback of the previous one.
            raise self.refusal.with_traceback(None)

    def check_copying(self) -> None:
        """The same for a master's bytes, which a slave that takes no messages of its own takes."""
        reason = self._stopped or self._no_space or self._over_mark
        if reason is not None:
            raise reason.with_traceback(None)

    @property
    def has_stopped(self) -> bool:
        """Whether messages are refused until the store is opened again."""
        return self._stopped is not None

    @property
    def is_over_mark(self) -> bool:
        """Whether messages are refused because the disk is nearly full."""
        return self._over_mark is not None

    def stop(self, reason: str) -> None:
        """Refuse messages for good; the first reason stays."""
        if self._stopped is None:
            self._stopped = StoreStopped(reason)
            self._decide()

    def write_failed(self, error: OSError) -> StoreStopped:
        """Stop, because it is unknown what reached the disk; the error to raise."""
        self.stop(f"writing failed: {error}")
        assert self._stopped is not None
        return self._stopped

    def set_no_space(self, error: DiskFull | None) -> None:
        """The device is full, or has space again."""
        self._no_space = error
        self._decide()

    def set_over_mark(self, error: DiskFull | None) -> None:
        """The disk is used above the mark, or no longer."""
        self._over_mark = error
        self._decide()

    def hold(self, holder: str, reason: str | None) -> None:
        """Refuse messages until the same holder calls this with None."""
        self._held.pop(holder, None)
        if reason is not None:
            self._held[holder] = AppendsHeld(reason)
        self._decide()

    def _decide(self) -> None:
        held = next(iter(self._held.values()), None)
        self.refusal = self._stopped or self._no_space or self._over_mark or held
