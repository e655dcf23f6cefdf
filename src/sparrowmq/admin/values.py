"""Values that several operations share: lists with failures, changes of settings, times."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Generic, TypeVar, overload

T = TypeVar("T", covariant=True)

EARLIEST_MS = 0
LATEST_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class BrokerFailure:
    """Why a broker is missing from a result."""

    broker: str
    address: str
    reason: str
    may_have_acted: bool = False
    """Whether it was sent the request: a change may have been made all the same."""
    is_refusal: bool = field(default=False, compare=False)
    """Whether it answered, with a code other than success; else it was not heard of."""
    is_away: bool = field(default=False, compare=False)
    """Whether it could not be reached at all, so that nothing was sent to it."""

    def __str__(self) -> str:
        return f"{self.broker}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Listing(Sequence[T], Generic[T]):
    """What the servers that answered gave, as a sequence, and the failures of the others."""

    items: tuple[T, ...]
    errors: tuple[BrokerFailure, ...] = ()
    is_cut: bool = False
    """Whether there is more than was asked for."""

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        return self.items[index]


Setting = bool | int | str | None
"""A value of a topic's or group's setting; None for an attribute that is not set."""


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One setting on one broker, before and after an update."""

    broker: str
    setting: str
    before: Setting
    after: Setting

    def __str__(self) -> str:
        return f"{self.broker}: {self.setting} {self.before} → {self.after}"


def time_of(time_ms: int | None) -> datetime | None:
    """A time of the wire, which writes 0 or -1 for none."""
    if time_ms is None or time_ms <= 0:
        return None
    return datetime.fromtimestamp(time_ms / 1000, UTC)
