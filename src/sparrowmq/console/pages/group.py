"""One consumer group: its lag in every queue, its members, what they subscribe to."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from sparrowmq.admin.groups import GroupInfo
from sparrowmq.admin.lag import GroupLag, QueueLag
from sparrowmq.admin.members import GroupMember, Subscription
from sparrowmq.client.strategies import NAMED
from sparrowmq.console.charts import chart
from sparrowmq.console.pages.groups import state_of
from sparrowmq.console.view import Answer, Page, PageRoute, View, panel
from sparrowmq.protocol.names import is_retry_topic


@dataclass(frozen=True, slots=True)
class TopicLag:
    """A topic of the group with its queues."""

    topic: str
    queues: tuple[QueueLag, ...]
    is_retry: bool

    @property
    def lag(self) -> int:
        """Unread messages."""
        return sum(each.lag for each in self.queues)

    @property
    def matching(self) -> str:
        """How many of them match the filter; `?` if that is unknown for a queue."""
        known = [each.matching for each in self.queues if each.matching is not None]
        if len(known) < len(self.queues):
            return "?"
        return f"{'' if all(each.is_exact for each in self.queues) else 'about '}{sum(known):,}"

    @property
    def largest(self) -> int:
        """The lag at which a bar is full."""
        return max((each.lag for each in self.queues), default=0)


@dataclass(frozen=True, slots=True)
class DifferingSubscription:
    """A subscription, and the members that have a different one."""

    subscription: Subscription
    members: int
    without: tuple[str, ...]


async def show(view: View) -> Answer:
    """Show everything about the group on one page."""
    console, name = view.console, view.names["group"]
    console.sampler.seen_groups.mark(name)
    counts = view.asked("matching") == "1"
    info, lag = await asyncio.gather(
        panel(console.admin.group(name)),
        panel(console.admin.lag(name, waiting=True, matching=counts)),
    )
    is_uncounted = counts and lag.value is None
    if is_uncounted:  # brokers count too slowly: leave out the column
        lag = await panel(console.admin.lag(name, waiting=True))
    if info.value is None and lag.value is None:
        await console.admin.group(name)  # raises NotFound, which is another page
    oldest = oldest_of(lag.value)
    console.sampler.remember_lag(lag, oldest)
    topics = by_topic(lag.value.queues if lag.value else ())
    return Page(
        template="group.html",
        title=f"Group {name}",
        area="groups",
        command=f"sparrowmq group {'lag' if counts else 'show'} {name}",
        is_live=not counts,  # counting reads the waiting messages
        values={
            "name": name,
            "info": info,
            "lag": lag,
            "oldest": oldest,
            "topics": topics,
            "counts": counts and not is_uncounted,
            "is_uncounted": is_uncounted,
            "has_filter": has_filter(info.value),
            "plain_topics": plain_topics(topics, info.value),
            "state": state_of(info.value, lag.value),
            "wanted": wanted_by(info.value.members) if info.value else [],
            "last_reset": (await panel(console.last_reset(name))).value,
            "span": view.span,
            "charts": [
                chart(
                    *(console.history, "lag", "Unread messages", "messages"),
                    *([("unread", f"lag/{name}")], view.span, view.now_ms),
                ),
                chart(
                    *(console.history, "consumed", "Messages consumed", "per second"),
                    *([("consumed", f"consumed/{name}")], view.span, view.now_ms),
                ),
            ],
        },
    )


def oldest_of(lag: GroupLag | None) -> datetime | None:
    """When the oldest unread message was stored; None if there is none or one is not known."""
    queues = [each for each in lag.queues if each.lag] if lag else []
    times = [each.oldest_waiting for each in queues if each.oldest_waiting is not None]
    return min(times, default=None) if len(times) == len(queues) else None


def by_topic(queues: Iterable[QueueLag]) -> list[TopicLag]:
    """The queues by topic, the group's own retry topic last."""
    found: dict[str, list[QueueLag]] = {}
    for each in queues:
        found.setdefault(each.queue.topic, []).append(each)
    topics = [TopicLag(name, tuple(each), is_retry_topic(name)) for name, each in found.items()]
    return sorted(topics, key=lambda each: (each.is_retry, each.topic))


def plain_topics(topics: Iterable[TopicLag], info: GroupInfo | None) -> list[str]:
    """The topics that a reset can move."""
    names = {each.topic for each in topics} | set(info.topics if info else ())
    names |= {each.topic for each in (info.subscriptions if info else ())}
    return sorted(name for name in names if not is_retry_topic(name))


def wanted_by(members: Iterable[GroupMember]) -> list[DifferingSubscription]:
    """Every subscription with the members that do not have it."""
    known = [each for each in members if each.subscriptions is not None]
    every = sorted({one for each in known for one in each.subscriptions or ()})
    return [
        DifferingSubscription(
            one,
            sum(one in (each.subscriptions or ()) for each in known),
            tuple(each.client_id for each in known if one not in (each.subscriptions or ())),
        )
        for one in every
    ]


def has_filter(info: GroupInfo | None) -> bool:
    """Whether members take only some of the messages."""
    found = info.subscriptions if info is not None else ()
    return any(each.expression != "*" for each in found if not is_retry_topic(each.topic))


async def show_member(view: View) -> Answer:
    """Show one member, with the stacks of its threads and tasks on request."""
    name, client = view.names["group"], view.names["client"]
    stacks = view.asked("stacks") == "1"
    member = await panel(view.console.admin.member(name, client, stacks=stacks))
    return Page(
        template="member.html",
        title=f"Member {client}",
        area="groups",
        command=f"sparrowmq group members {name}" + (f" --stacks {client}" if stacks else ""),
        is_live=not stacks,
        values={"name": name, "client": client, "member": member, "stacks": stacks},
    )


async def show_rebalance(view: View) -> Answer:
    """Show who owns which queue and why, as a matrix and in words."""
    name = view.names["group"]
    found = await panel(view.console.admin.rebalance(name))
    held: dict[str, dict[str, list[int]]] = {}
    for each in found.value.queues if found.value else ():
        label = f"{each.queue.topic} {each.queue.broker_name}"
        held.setdefault(label, {}).setdefault(each.owner or "", []).append(each.queue.queue_id)
    return Page(
        template="rebalance.html",
        title=f"Rebalance of {name}",
        area="groups",
        command=f"sparrowmq rebalance explain {name}",
        values={
            "name": name,
            "found": found,
            "held": held,
            "has_picture": bool(held and found.value and found.value.strategies <= NAMED.keys()),
            "seen": _digest(held),
        },
    )


def _digest(held: Mapping[str, Mapping[str, Sequence[int]]]) -> str:
    """Differs when owners do: with it in its address, a picture is loaded again only then."""
    return sha256(repr(held).encode()).hexdigest()[:12]


ROUTES = (
    PageRoute("/groups/{group}/rebalance", show_rebalance),
    PageRoute("/groups/{group}/members/{client:path}", show_member),
    PageRoute("/groups/{group}", show),
)
