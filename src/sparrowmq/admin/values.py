"""Values that several operations share: lists with failures, changes of settings, times."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar, overload

from sparrowmq.clock import date_of

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
    """Whether it was sent the request: it may have made the change nevertheless."""
    is_refusal: bool = field(default=False, compare=False)
    """Whether it answered with a code other than success; if not, no answer came."""
    is_away: bool = field(default=False, compare=False)
    """Whether it could not be reached at all, so that nothing was sent to it."""

    def __str__(self) -> str:
        return f"{self.broker}: {self.reason}"


def distinct(failures: Iterable[BrokerFailure]) -> tuple[BrokerFailure, ...]:
    """Each reason of a server once: one that does not answer is asked once, and fails all further
    questions with the same words."""
    found: dict[tuple[str, str, str], BrokerFailure] = {}
    for each in failures:
        found.setdefault((each.broker, each.address, each.reason), each)
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class Listing(Sequence[T], Generic[T]):
    """The results of the servers that answered, as a sequence, and the others' failures."""

    items: tuple[T, ...]
    errors: tuple[BrokerFailure, ...] = ()
    is_cut: bool = False
    """Whether there are more results than were requested."""

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
    """A time from the wire, where 0 or -1 means none."""
    if time_ms is None or time_ms <= 0:
        return None
    return date_of(time_ms)
