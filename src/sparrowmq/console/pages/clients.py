"""Connected clients: producers, and members of groups."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from sparrowmq.admin.brokers import BrokerInfo
from sparrowmq.console.listing import part_of
from sparrowmq.console.view import Answer, Page, PageRoute, View, panel


async def show(view: View) -> Answer:
    """List all clients, as the brokers know them."""
    admin = view.console.admin
    clients, brokers = await asyncio.gather(panel(admin.clients()), panel(admin.brokers()))
    if clients.value is None:
        clients = replace(clients, problem=f"{clients.problem}{_which(brokers.value or ())}")
    part = part_of(
        list(clients.value or ()),
        view.query,
        key=lambda each: f"{each.client_id} {' '.join(each.groups)} {each.role}",
    )
    asks_members = view.asked("since") == "1"
    if asks_members:
        known = await panel(view.console.admin.with_start_times(part.rows))
        part = replace(part, rows=tuple(known.value or part.rows))
    return Page(
        template="clients.html",
        title="Clients",
        area="clients",
        command="sparrowmq client list",
        values={
            "clients": clients,
            "part": part,
            "asks_members": asks_members,
        },
    )


def _which(brokers: Sequence[BrokerInfo]) -> str:
    """The brokers to look at: those that do not answer, or all that were asked if each answers a
    small question in time."""
    silent = sorted({each.name for each in brokers if each.runtime is None})
    if silent:
        return f"; {', '.join(silent)} did not answer"
    asked = ", ".join(sorted({each.name for each in brokers}))
    return f"; asked were {asked}, and one of them is slow" if asked else ""


ROUTES = (PageRoute("/clients", show),)
