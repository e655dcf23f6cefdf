"""Connected clients: producers, and members of groups."""

from dataclasses import replace

from sparrowmq.console.listing import part_of
from sparrowmq.console.view import Answer, Page, PageRoute, View, panel


async def show(view: View) -> Answer:
    """List all clients, as the brokers know them."""
    clients = await panel(view.console.admin.clients())
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


ROUTES = (PageRoute("/clients", show),)
