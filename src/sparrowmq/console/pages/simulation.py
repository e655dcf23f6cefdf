"""What a change of a group's members, queues or brokers would do: a form, figures and a picture.

Nothing is changed, so the form is a GET and its address can be shared. The picture is a separate
response, which a page shows as an image: markup not made by a template is never part of a page.
"""

import asyncio
import shlex
from collections.abc import Sequence
from urllib.parse import urlencode

from starlette.responses import Response

from sparrowmq.admin.rebalance_picture import draw, seconds
from sparrowmq.admin.rebalance_simulation import (
    RebalanceEvent,
    RebalanceSimulation,
    SimulatedGroup,
    described_group,
    read_event,
    simulate,
)
from sparrowmq.client.strategies import NAMED
from sparrowmq.console.text import plural, segment
from sparrowmq.console.view import EXPECTED, Answer, Page, PageRoute, View

_MOST_QUEUES = 512
_MOST_MEMBERS = 64
_MOST_EVENTS = 8
"""A limit because other pages are computed at the same time; the command has none."""
_FIELDS = ("events", "strategy", "topic", "queues", "members")


async def show(view: View) -> Answer:
    """Show the form, and the simulation that it asks for."""
    name = view.names["group"]
    found: list[RebalanceSimulation] = []
    problem, before = "", None
    try:
        before, found = await _simulated(view)
    except (ValueError, *EXPECTED) as error:
        problem = str(error)
    query = {field: view.asked(field) for field in _FIELDS if view.asked(field)}
    if before is not None:
        query["of"] = view.console.keep_simulated(before)
    base = f"/groups/{segment(name)}/rebalance"
    return Page(
        template="simulation.html",
        title=f"Simulate a rebalance of {name}",
        area="groups",
        command=_command(view),
        is_live=False,
        values={
            "name": name,
            "before": before,
            "found": found,
            "problem": problem,
            "strategies": list(NAMED),
            "picture": f"{base}/picture.svg?{urlencode(query)}",
            "seconds": seconds,
        },
    )


async def picture(view: View) -> Answer:
    """The simulation as a drawing."""
    before, found = await _simulated(view)
    title = f"group {view.names['group']}: {_size(before)}"
    drawn = await asyncio.to_thread(draw, found, title)
    return Response(drawn, media_type="image/svg+xml")


async def owners(view: View) -> Answer:
    """The owners of a live group now, as a drawing."""
    group = await view.console.admin.simulated_group(view.names["group"])
    _check_size(group)
    if not group.owners or group.strategy not in NAMED:
        raise ValueError("the members of this group do not report owners and strategy")
    found = await asyncio.to_thread(simulate, group, (), [group.strategy])
    drawn = await asyncio.to_thread(draw, found, f"group {view.names['group']}: {_size(group)}")
    return Response(drawn, media_type="image/svg+xml")


def _size(group: SimulatedGroup) -> str:
    return f"{plural(len(group.queues), 'queue')}, {plural(len(group.members), 'member')}"


async def _simulated(view: View) -> tuple[SimulatedGroup, list[RebalanceSimulation]]:
    """Run the simulation. Raises ValueError for an invalid form, and what asking for a live group
    raises."""
    events = read_events(view.asked("events") or "join")
    chosen = view.asked("strategy")
    if chosen and chosen not in NAMED:
        raise ValueError(f"strategy is {chosen!r}, must be one of {', '.join(NAMED)}")
    kept = view.console.simulated(view.asked("of"))
    if kept is not None:  # the picture of a page shows the same moment as its table
        before = kept
    elif view.asked("members"):
        before = described_group(_number(view, "queues", 8), _number(view, "members", 1))
    else:
        before = await view.console.admin.simulated_group(
            view.names["group"], view.asked("topic") or None
        )
    _check_size(before)
    strategies = [chosen] if chosen else []
    return before, await asyncio.to_thread(simulate, before, events, strategies)


def _check_size(group: SimulatedGroup) -> None:
    if len(group.queues) > _MOST_QUEUES or len(group.members) > _MOST_MEMBERS:
        raise ValueError(
            f"a page shows at most {_MOST_QUEUES} queues and {_MOST_MEMBERS} members, these are"
            f" {_size(group)}; sparrowmq rebalance simulate has no such limit"
        )


def read_events(text: str) -> list[RebalanceEvent]:
    """`join, kill=member-2`. Raises ValueError."""
    words = text.replace(",", " ").split()
    if len(words) > _MOST_EVENTS:
        raise ValueError(f"{len(words)} events, at most {_MOST_EVENTS} are simulated on a page")
    found = [read_event(word) for word in words]
    if any(each.queues > _MOST_QUEUES for each in found):
        raise ValueError(f"a page shows at most {_MOST_QUEUES} queues")
    return found


def _number(view: View, field: str, default: int) -> int:
    text = view.asked(field)
    if not text:
        return default
    if not text.isdecimal() or len(text) > 4 or not int(text):
        raise ValueError(f"{field} is {text!r}, must be a number from 1 on")
    return int(text)


def _command(view: View) -> str:
    words: Sequence[str] = (view.asked("events") or "join").replace(",", " ").split()
    command = ["sparrowmq", "rebalance", "simulate"]
    if view.asked("members"):
        command += ["--queues", view.asked("queues") or "8", "--members", view.asked("members")]
    else:
        command += [view.names["group"]]
        command += ["--topic", view.asked("topic")] if view.asked("topic") else []
    command += [part for word in words for part in ("--event", word)]
    command += ["--strategy", view.asked("strategy")] if view.asked("strategy") else []
    return shlex.join(command)


ROUTES = (
    PageRoute("/groups/{group}/rebalance/simulate", show),
    PageRoute("/groups/{group}/rebalance/picture.svg", picture),
    PageRoute("/groups/{group}/rebalance/owners.svg", owners),
)
