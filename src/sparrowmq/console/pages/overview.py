"""The first page: brokers, totals, lagging groups, busy topics, and the search box."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sparrowmq.admin.brokers import BrokerInfo
from sparrowmq.console.charts import chart
from sparrowmq.console.listing import MOST_PATTERN, matches
from sparrowmq.console.sampler import MOST_LAGGING
from sparrowmq.console.text import moment, segment
from sparrowmq.console.view import Answer, Done, Page, PageRoute, Sum, View, panel
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.ids import OffsetId
from sparrowmq.protocol.names import is_system_group

_MOST = 10
_SUGGESTED = 20


async def show(view: View) -> Answer:
    """Show the cluster at a glance."""
    console = view.console
    figures = console.sampler.figures
    brokers = await panel(console.admin.brokers())
    masters = [each for each in brokers.value or () if each.is_master]
    groups = sorted(figures.groups.items(), key=lambda item: -item[1].lag)
    used = [item for item in figures.topics.items() if item[1].stored_per_s or item[1].messages]
    topics = sorted(used, key=lambda item: -item[1].stored_per_s)
    history, span, now = console.history, view.span, view.now_ms
    return Page(
        template="overview.html",
        title="Overview",
        area="overview",
        command="sparrowmq cluster show",
        values={
            "brokers": brokers,
            "problems": problems(brokers.value or ()),
            "examination": figures.examination,
            "doctor_problem": figures.doctor_problem,
            "stored_per_s": total_of(masters, "stored_per_s"),
            "delivered_per_s": total_of(masters, "delivered_per_s"),
            "stored_today": stored_today(masters, now),
            "counts_since_start": counts_since_start(masters, now),
            "lagging": [(name, each) for name, each in groups[:MOST_LAGGING] if each.lag],
            "group_count": len(groups),
            "is_sampled": figures.group_count is not None,
            "lag": figures.lag,
            "round_s": figures.round_s,
            "busiest": topics[:_MOST],
            "span": span,
            "charts": [
                chart(
                    *(history, "rates", "Messages", "per second"),
                    *([("stored", "in"), ("delivered", "out")], span, now),
                ),
                chart(
                    *(history, "lag", "Unread messages of all groups", "messages"),
                    *([("unread", "lag")], span, now),
                ),
            ],
        },
    )


def stored_today(masters: Sequence[BrokerInfo], now_ms: int) -> Sum:
    """Messages stored today. A broker counts since its start: one that was started today lacks what
    it stored before, unless all were, where the page says so."""
    found = total_of(masters, "stored_today")
    began = [each for each in masters if _began_today(each, now_ms)]
    if counts_since_start(masters, now_ms):
        return found
    parts = (f"{each.name} counts since its start" for each in began)
    return replace(found, missing=(*found.missing, *parts))


def counts_since_start(masters: Sequence[BrokerInfo], now_ms: int) -> bool:
    """Whether no broker that answers knows what was stored before its start, which was today."""
    answering = [each for each in masters if each.runtime is not None]
    return bool(answering) and all(_began_today(each, now_ms) for each in answering)


def _began_today(broker: BrokerInfo, now_ms: int) -> bool:
    started = None if broker.runtime is None else broker.runtime.started
    today = moment(now_ms)
    return started is not None and today is not None and started.date() == today.date()


def total_of(masters: Iterable[BrokerInfo], name: str) -> Sum:
    """The sum of a figure over all masters; names those that do not report it."""
    known, missing = [], []
    for each in masters:
        value = None if each.runtime is None else getattr(each.runtime, name)
        if value is not None:
            known.append(value)
        elif each.runtime is None:
            missing.append(f"{each.name} did not answer")
        else:  # Apache's brokers have no rates in their first seconds
            missing.append(f"{each.name} does not know it yet")
    return Sum(sum(known) if known else None, tuple(missing))


def problems(brokers: Iterable[BrokerInfo]) -> list[str]:
    """Problems that brokers themselves report to operators."""
    found = []
    for broker in brokers:
        if broker.runtime is None:
            continue
        if broker.runtime.busy_reason:
            found.append(f"{broker.name} refuses messages: {broker.runtime.busy_reason}")
        if (broker.runtime.disk_used or 0) > 0.85:
            used = f"{(broker.runtime.disk_used or 0) * 100:.0f} %"
            found.append(f"{broker.name}: its disk is {used} full")
    return found


async def search(view: View) -> Answer:
    """Go to the page of a name, an id or a key."""
    wanted = view.asked("q")[:MOST_PATTERN]
    if not wanted:
        return Done("/messages")
    topics, groups = await view.console.names.topics(), await view.console.names.groups()
    if wanted in topics:
        return Done(f"/topics/{segment(wanted)}")
    if wanted in groups:
        return Done(f"/groups/{segment(wanted)}")
    if _is_id(wanted):
        return Done(f"/messages?id={segment(wanted)}")
    names = view.console.names
    topics = sorted(topics, key=lambda name: (not names.is_plain_topic(name), name))
    groups = sorted(groups, key=lambda name: (is_system_group(name), name))
    return Page(
        template="search.html",
        title=f"Search for {wanted}",
        area="messages",
        is_live=False,
        values={
            "wanted": wanted,
            "topics": [name for name in topics if matches(wanted, name)],
            "groups": [name for name in groups if matches(wanted, name)],
            "most": _SUGGESTED,
            "plain": [name for name in topics if names.is_plain_topic(name)][:500],
        },
    )


def _is_id(text: str) -> bool:
    try:
        OffsetId.parse(text)
    except BodyError:
        return False
    return True


ROUTES = (PageRoute("/", show), PageRoute("/search", search))
