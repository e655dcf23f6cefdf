"""The list of consumer groups, and creating one."""

from dataclasses import dataclass
from datetime import datetime

from sparrowmq.admin.groups import GroupInfo
from sparrowmq.admin.lag import GroupLag
from sparrowmq.console.listing import part_of
from sparrowmq.console.text import segment
from sparrowmq.console.view import (
    Answer,
    Done,
    Page,
    PageRoute,
    Panel,
    View,
    changing,
    entering,
    missing_parts,
    panels,
)
from sparrowmq.protocol.names import is_retry_topic, is_system_group


@dataclass(frozen=True, slots=True)
class GroupBadge:
    """What a group is doing, in words and as a matching colour."""

    word: str
    tone: str
    """`good`, `warn`, `bad` or `quiet`."""


def state_of(info: GroupInfo | None, lag: GroupLag | None) -> GroupBadge:
    """The state of a group, as far as one look can tell."""
    if info is None:
        return GroupBadge("?", "quiet")
    if info.pauses:
        return GroupBadge(info.state, "warn")
    if not info.is_online:
        waiting = lag is not None and lag.lag > 0
        return GroupBadge(info.state, "bad" if waiting else "quiet")
    if lag is not None and lag.lag and not lag.consumed_per_s:
        return GroupBadge("not advancing", "warn")
    return (
        GroupBadge(info.state, "good")
        if lag is not None and lag.queues
        else GroupBadge("online", "good")
    )


@dataclass(frozen=True, slots=True)
class GroupLine:
    """One group of the list."""

    info: Panel[GroupInfo]
    lag: Panel[GroupLag]
    state: GroupBadge
    oldest: datetime | None
    topics: tuple[str, ...]
    """Without its own retry topic."""


async def show(view: View) -> Answer:
    """List fifty groups; asks for the members and lag of only these."""
    console = view.console
    figures = console.sampler.figures.groups
    names = await console.names.groups()
    shows_all = view.asked("all") == "1"
    shown = [name for name in names if shows_all or not is_system_group(name)]
    part = part_of(
        shown,
        view.query,
        orders={
            "lag": lambda name: figures[name].lag if name in figures else None,
            "rate": lambda name: figures[name].consumed_per_s if name in figures else None,
        },
    )
    infos = await panels(part.rows, console.admin.group)
    lags = await panels(part.rows, lambda name: console.admin.lag(name, owners=False))
    oldest = await console.sampler.oldest_waiting(
        {name: each.value for name, each in lags.items() if each.value is not None}
    )
    for name, answer in lags.items():
        if not is_system_group(name):
            console.sampler.remember_lag(answer, oldest.get(name))
    return Page(
        template="groups.html",
        title="Groups",
        area="groups",
        command="sparrowmq group list --long",
        values={
            "part": part,
            "rows": {name: _row(infos[name], lags[name], oldest.get(name)) for name in part.rows},
            "missing": missing_parts(lags.values()),
            "shows_all": shows_all,
            "hidden": len(names) - len(shown),
        },
    )


def _row(info: Panel[GroupInfo], lag: Panel[GroupLag], oldest: datetime | None) -> GroupLine:
    topics = tuple(
        each for each in (info.value.topics if info.value else ()) if not is_retry_topic(each)
    )
    return GroupLine(info, lag, state_of(info.value, lag.value), oldest, topics)


async def create(view: View) -> Answer:
    """Create a group on all brokers."""
    name = view.entered("name")
    work = view.console.changer.create_group(name, replace=False)
    with entering("name"):
        done = await changing(view, "create group", name, "", "with default settings", work)
    view.console.names.forget()
    return Done(f"/groups/{segment(name)}", f"Group {name} was created on {', '.join(done)}.")


ROUTES = (PageRoute("/groups", show, create),)
