"""Brokers: the list, and one with its figures and settings."""

import asyncio

from sparrowmq.admin.errors import NotFound
from sparrowmq.console.charts import chart
from sparrowmq.console.view import Answer, Page, PageRoute, View, panel


async def show(view: View) -> Answer:
    """All brokers, and the slaves that masters remember."""
    admin = view.console.admin
    brokers, slaves, servers = await asyncio.gather(
        panel(admin.brokers()), panel(admin.slaves()), panel(admin.name_servers())
    )
    return Page(
        template="brokers.html",
        title="Brokers",
        area="brokers",
        command="sparrowmq broker list",
        values={"brokers": brokers, "slaves": slaves, "servers": servers},
    )


async def show_one(view: View) -> Answer:
    """Figures, settings and slaves of one name."""
    name = view.names["broker"]
    admin, history = view.console.admin, view.console.history
    brokers, settings, slaves = await asyncio.gather(
        panel(admin.brokers()), panel(admin.broker_config(name)), panel(admin.slaves([name]))
    )
    found = [each for each in brokers.value or () if each.name == name]
    if brokers.value is not None and not found:
        known = ", ".join(sorted({each.name for each in brokers.value}))
        raise NotFound("broker", name, f"registered are: {known}")
    return Page(
        template="broker.html",
        title=f"Broker {name}",
        area="brokers",
        command=f"sparrowmq broker show {name}",
        values={
            "name": name,
            "brokers": brokers,
            "found": found,
            "settings": settings,
            "slaves": slaves,
            "match": view.asked("match"),
            "span": view.span,
            "chart": chart(
                *(history, "rates", "Messages", "per second"),
                *([("stored", f"in/{name}"), ("delivered", f"out/{name}")], view.span, view.now_ms),
            ),
        },
    )


ROUTES = (PageRoute("/brokers/{broker}", show_one), PageRoute("/brokers", show))
