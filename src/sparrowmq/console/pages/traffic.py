"""Traffic: limits and their use, de-duplicated topics, draining brokers.

form ─▶ LimitChange: what the form means ─▶ preview (a dry run) ─▶ change, if it is still the same
"""

import asyncio
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.drain_status import BrokerDrain
from sparrowmq.admin.limits import Limit
from sparrowmq.admin.values import SettingChange
from sparrowmq.console.previews import both_sides, change_preview, is_confirmed
from sparrowmq.console.text import plural, size
from sparrowmq.console.view import (
    Answer,
    Done,
    FieldError,
    Page,
    PageRoute,
    View,
    changing,
    panel,
    panels,
)
from sparrowmq.protocol.limits import BYTES, MESSAGES, BacklogAction, Scope

_HOME = "/traffic"
_BACKLOG = "backlog"
_SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_TIMES_S = {"seconds": 1, "minutes": 60, "hours": 3600}
_MOST_DIGITS = 15
_SCOPES = {
    Scope.TOPIC: "a topic",
    Scope.PRODUCER_GROUP: "a producer group",
    Scope.CONSUMER_GROUP: "a consumer group",
    Scope.CLIENT: "every client",
}


@dataclass(frozen=True, slots=True)
class LimitLine:
    """A line of the table: a limit, for all brokers together or for one."""

    limit: Limit
    unit: str
    """messages, bytes or backlog."""
    broker: str
    """Empty for the sum of several."""
    is_part: bool = False
    """Whether the line with the sum is above it."""

    @property
    def word(self) -> str:
        """What the limit does while it is reached."""
        backlog = self.limit.backlog
        if backlog is not None and backlog.action is BacklogAction.SLOW:
            return "slowing"
        return "holding pulls" if self.limit.scope == Scope.CONSUMER_GROUP.value else "refusing"

    @property
    def most(self) -> int:
        """The limit."""
        if self.limit.backlog is not None:
            return self.limit.backlog.most
        most = self.limit.bytes if self.unit == BYTES else self.limit.messages
        assert most is not None
        return most

    @property
    def used(self) -> float:
        """How much of the limit is used; for a backlog, the lag of the slowest group."""
        if self.limit.backlog is not None:
            return max(self.limit.lags.values(), default=0)
        return self.limit.used_bytes if self.unit == BYTES else self.limit.used_messages


def rows_of(limits: Sequence[Limit]) -> list[LimitLine]:
    """The sum first, then each broker where there are several."""
    found = []
    for limit in limits:
        for unit in units_of(limit):
            found.append(LimitLine(limit, unit, "" if limit.by_broker else limit.brokers[0]))
            found += [
                LimitLine(part, unit, broker, is_part=True)
                for broker, part in limit.by_broker.items()
                if unit in units_of(part)
            ]
    return found


def units_of(limit: Limit) -> list[str]:
    """The units that a limit restricts."""
    if limit.backlog is not None:
        return [_BACKLOG]
    units = {MESSAGES: limit.messages, BYTES: limit.bytes}
    return [unit for unit, most in units.items() if most is not None]


async def show(view: View) -> Answer:
    """Show all limits, windows and drains."""
    admin = view.console.admin
    limits, windows, brokers, left = await asyncio.gather(
        panel(admin.limits()),
        panel(admin.dedup_windows()),
        panel(admin.brokers()),
        panel(admin.drained_brokers()),
    )
    masters = [each for each in brokers.value or () if each.is_master]
    draining = [each.name for each in masters if each.runtime and each.runtime.drain]
    rows = rows_of(limits.value or ())
    return Page(
        template="traffic.html",
        title="Traffic",
        area="traffic",
        command=f"sparrowmq broker drain {draining[0]} --dry-run"
        if draining
        else "sparrowmq quota list",
        values={
            "limits": limits,
            "rows": rows,
            "removable": {removal_of(row): row for row in rows if not row.is_part},
            "windows": windows,
            "brokers": brokers,
            "masters": [each.name for each in masters],
            "drains": await panels(draining, admin.broker_drain),
            "left": left,
            "has_apache": any(
                each.runtime and "waitingPulls" not in each.runtime.table for each in masters
            ),
            "longest": longest,
            "scopes": {scope.value: words for scope, words in _SCOPES.items()},
            "sizes": list(_SIZES),
            "times": list(_TIMES_S),
        },
    )


def longest(drain: BrokerDrain) -> list[tuple[str, str, int, str]]:
    """The groups with most left to read: group, topic, messages, and why it may never finish."""
    unread = sorted(drain.unread, key=lambda each: -each.messages)
    return [(each.group, each.topic, each.messages, each.why) for each in unread[:10]]


def removal_of(row: LimitLine) -> str:
    """The value for a limit in the form of removals; names have no spaces."""
    return f"{row.limit.scope} {row.unit} {row.limit.name}"


# ---- what a form means


@dataclass(frozen=True, slots=True)
class LimitChange:
    """A change of one limit."""

    scope: str
    name: str
    messages: int | None = None
    size: int | None = None
    backlog: tuple[int, str] | None = None
    """A number, and `messages` or a unit of time."""
    groups: tuple[str, ...] = ()
    action: str = BacklogAction.REFUSE.value
    removes: str = ""
    """What is removed; empty if a limit is set."""
    brokers: tuple[str, ...] = ()

    async def change(self, admin: Admin, *, dry_run: bool) -> list[SettingChange]:
        """Make the change, or plan it in a dry run. Raises ValueError, NotFound."""
        if self.removes:
            return await admin.unset_limits(
                self.scope, self.name, which=[self.removes], brokers=self.brokers, dry_run=dry_run
            )
        if self.backlog is None:
            return await admin.set_quota(
                self.scope,
                self.name,
                messages=self.messages,
                bytes=self.size,
                brokers=self.brokers,
                dry_run=dry_run,
            )
        number, unit = self.backlog
        return await admin.set_backlog(
            self.name,
            self.groups,
            messages=number if unit == MESSAGES else None,
            seconds=None if unit == MESSAGES else number * _TIMES_S[unit],
            action=self.action,
            brokers=self.brokers,
            dry_run=dry_run,
        )

    @property
    def command(self) -> str:
        """The equivalent terminal command."""
        words = ["sparrowmq", "quota", "unset" if self.removes else "set", self.scope]
        words += [self.name] if self.scope != Scope.CLIENT.value else []
        if self.removes:
            words.append(f"--{self.removes}")
        if self.messages is not None:
            words += ["--messages", f"{self.messages}/s"]
        if self.size is not None:
            words += ["--bytes", f"{self.size}/s"]
        if self.backlog is not None:
            number, unit = self.backlog
            words += ["--backlog", f"{number}{'' if unit == MESSAGES else unit[0]}"]
            words += [word for group in self.groups for word in ("--group", group)]
            words += ["--action", self.action]
        words += [word for broker in self.brokers for word in ("--broker", broker)]
        return shlex.join([*words, "--dry-run"])

    @property
    def subject(self) -> str:
        """What is limited, in words."""
        return f"{self.scope} {self.name}" if self.scope != Scope.CLIENT.value else "every client"


def quota_wanted(view: View) -> LimitChange:
    """Raises ValueError for numbers that are none."""
    scope = view.entered("scope")
    name = "*" if scope == Scope.CLIENT.value else view.entered("name")
    size_bytes = _number(view, "bytes")
    if size_bytes is not None:
        size_bytes *= _unit(view, "size_unit", _SIZES)
    messages = _number(view, "messages")
    if messages is None and size_bytes is None:
        raise ValueError("nothing to limit: enter messages a second, bytes a second, or both")
    return LimitChange(scope, name, messages=messages, size=size_bytes, brokers=_brokers(view))


def backlog_wanted(view: View) -> LimitChange:
    """Raises ValueError for numbers that are none."""
    number, unit = _number(view, "most"), view.entered("most_unit") or MESSAGES
    if number is None:
        raise ValueError("enter how far groups may be behind, such as 100000")
    if unit != MESSAGES:
        _unit(view, "most_unit", _TIMES_S)
    return LimitChange(
        Scope.TOPIC.value,
        view.entered("name"),
        backlog=(number, unit),
        groups=tuple(view.entered("groups").replace(",", " ").split()),
        action=view.entered("action") or BacklogAction.REFUSE.value,
        brokers=_brokers(view),
    )


def removal_wanted(view: View) -> LimitChange:
    """Raises ValueError if nothing was chosen."""
    scope, _, rest = view.entered("limit").partition(" ")
    unit, _, name = rest.partition(" ")
    if not name:
        raise ValueError("choose the limit to remove")
    return LimitChange(scope, name, removes=unit)


def _number(view: View, field: str) -> int | None:
    text = view.entered(field)
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise FieldError(field, f"{field} is {text[:40]!r}, must be a whole number such as 1000")
    return int(text)


def _unit(view: View, field: str, units: dict[str, int]) -> int:
    chosen = view.entered(field)
    if chosen not in units:
        raise ValueError(f"the unit is {chosen[:40]!r}, must be one of {', '.join(units)}")
    return units[chosen]


def _brokers(view: View) -> tuple[str, ...]:
    chosen = view.entered("broker")
    return (chosen,) if chosen else ()


# ---- changes


async def set_quota(view: View) -> Answer:
    """Preview a quota; set it when the form confirms exactly this one."""
    fields = ("scope", "name", "messages", "bytes", "size_unit", "broker")
    return await _changed(view, quota_wanted(view), "set quota", fields)


async def set_backlog(view: View) -> Answer:
    """Preview a largest backlog, then set it, in the same way."""
    fields = ("name", "most", "most_unit", "groups", "action", "broker")
    return await _changed(view, backlog_wanted(view), "set backlog", fields)


async def unset(view: View) -> Answer:
    """Preview the removal of a limit, then remove it, in the same way."""
    return await _changed(view, removal_wanted(view), "remove limit", ("limit",))


async def _changed(view: View, wanted: LimitChange, action: str, fields: Sequence[str]) -> Answer:
    admin = view.console.changer
    changes = await wanted.change(admin, dry_run=True)
    if not changes:
        return Done(_HOME, f"Nothing to change: the limits of {wanted.subject} are like that.")
    if not is_confirmed(view, changes):
        return change_preview(
            *(view, changes),
            title=f"{'Remove a limit of' if wanted.removes else 'Limit'} {wanted.subject}",
            area="traffic",
            fields=fields,
            back=_HOME,
            command=wanted.command,
            note="" if wanted.removes else _note(wanted, changes),
        )
    before, after = both_sides(changes)
    await changing(
        *(view, action, wanted.subject, before, after), wanted.change(admin, dry_run=False)
    )
    done = "removed" if wanted.removes else "set on each broker"
    return Done(_HOME, f"The limit of {wanted.subject} is {done}.")


def _note(wanted: LimitChange, changes: Sequence[SettingChange]) -> str:
    """A note about consequences that surprise people."""
    if wanted.backlog is not None:
        groups = ", ".join(wanted.groups)
        what = "refused" if wanted.action == BacklogAction.REFUSE.value else "slowed"
        return (
            f"Sends to {wanted.name} are {what} on a broker on which one of these groups is that"
            f" far behind: {groups}. Groups that are paused or have no members do not count."
        )
    count = len({each.broker for each in changes})
    if count == 1:
        return "It is in force at once."
    sums = [plural(wanted.messages * count, "message")] if wanted.messages is not None else []
    sums += [size(wanted.size * count)] if wanted.size is not None else []
    together = f"together they let {' and '.join(sums)} a second through"
    return f"Each of the {count} brokers counts for itself, so {together}."


ROUTES = (
    PageRoute("/traffic", show),
    PageRoute("/traffic/quotas", None, set_quota),
    PageRoute("/traffic/backlogs", None, set_backlog),
    PageRoute("/traffic/removals", None, unset),
)
