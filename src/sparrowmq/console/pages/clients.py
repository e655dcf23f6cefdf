"""Clients that are connected: producers, and members of groups."""

import asyncio

from sparrowmq.admin.members import GroupMember, LiveProducer
from sparrowmq.console.listing import Part, part_of
from sparrowmq.console.view import Answer, Page, PageRoute, View, panel, panels

_MOST_GROUPS = 100
"""Groups whose members are asked for; the page says when there are more."""


async def show(view: View) -> Answer:
    """Producers as brokers know them, and members of the groups."""
    console = view.console
    groups = [name for name in await console.names.groups() if not console.names.is_own_group(name)]
    group = view.asked("group")
    asked = [name for name in groups if not group or name == group][:_MOST_GROUPS]
    producers, members = await asyncio.gather(
        panel(console.admin.producers()), panels(asked, console.admin.members)
    )
    consumers = [
        (name, member) for name, answer in members.items() for member in (answer.value or ())
    ]
    return Page(
        template="clients.html",
        title="Clients",
        area="clients",
        command="sparrowmq client list",
        values={
            "producers": producers,
            "shown_producers": _producers(view, list(producers.value or ())),
            "consumers": _consumers(view, consumers),
            "problems": sorted({a.problem for a in members.values() if a.problem}),
            "asked": len(asked),
            "groups": len(groups),
            "doubled": _doubled(consumers),
        },
    )


def _producers(view: View, found: list[LiveProducer]) -> Part[LiveProducer]:
    return part_of(found, view.query, key=lambda each: f"{each.client_id} {each.group}")


def _consumers(view: View, found: list[tuple[str, GroupMember]]) -> Part[tuple[str, GroupMember]]:
    return part_of(found, view.query, key=lambda each: f"{each[1].client_id} {each[0]}")


def _doubled(consumers: list[tuple[str, GroupMember]]) -> set[tuple[str, str]]:
    """Client ids that several addresses use in one group."""
    seen: dict[tuple[str, str], str] = {}
    found = set()
    for group, member in consumers:
        key = (group, member.client_id)
        if seen.setdefault(key, member.address) != member.address:
            found.add(key)
    return found


ROUTES = (PageRoute("/clients", show),)
