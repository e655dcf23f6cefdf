"""Brokers: the list, and one broker with its figures; changing settings, starting a clean-up."""

import asyncio
import shlex

from sparrowmq.admin.cleaning import Cleanable
from sparrowmq.admin.errors import NotFound
from sparrowmq.console.charts import chart
from sparrowmq.console.previews import both_sides, change_preview, is_confirmed
from sparrowmq.console.text import segment
from sparrowmq.console.view import Answer, Done, FieldError, Page, PageRoute, View, changing, panel

UNTIL_RESTART = "It holds until the next start; a setting of the server's own makes it last."
APACHE_KEEPS = "Apache's server writes it into the file that it was started with, if there is one."


async def show(view: View) -> Answer:
    """List all brokers, and the slaves that masters remember."""
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
    """Show the figures, settings and slaves of one broker name."""
    name = view.names["broker"]
    admin, history = view.console.admin, view.console.history
    brokers, settings, slaves = await asyncio.gather(
        panel(admin.brokers()), panel(admin.broker_settings(name)), panel(admin.slaves([name]))
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
            "cleanable": list(Cleanable),
            "span": view.span,
            "chart": chart(
                *(history, "rates", "Messages", "per second"),
                *([("stored", f"in/{name}"), ("delivered", f"out/{name}")], view.span, view.now_ms),
            ),
        },
    )


# ---- changes


async def change(view: View) -> Answer:
    """Preview a changed setting; change it when the form confirms exactly this preview."""
    name, setting, value = view.names["broker"], view.entered("setting"), view.entered("value")
    admin, back = view.console.changer, f"/brokers/{segment(name)}"
    wanted = {setting: value}
    changes = await admin.change_broker_settings(name, wanted, dry_run=True)
    if not changes:
        return Done(back, f"Nothing to change: {setting} of {name} is {value}.")
    if not is_confirmed(view, changes):
        is_kept = (await admin.broker_settings(name)).is_kept
        pair = f"{setting}={value}"
        return change_preview(
            *(view, changes),
            title=f"Change broker {name}",
            area="brokers",
            fields=("setting", "value"),
            back=back,
            note=APACHE_KEEPS if is_kept else UNTIL_RESTART,
            command=shlex.join(["sparrowmq", "broker", "config", "set", name, pair, "--dry-run"]),
        )
    before, after = both_sides(changes)
    work = admin.change_broker_settings(name, wanted)
    await changing(view, "change broker", name, before, after, work)
    return Done(back, f"{setting} of {name} is {value} now.")


async def clean(view: View) -> Answer:
    """Let a broker delete what is expired or unused, if its name was typed."""
    name, chosen = view.names["broker"], view.entered("what")
    if view.entered("typed") != name:
        raise FieldError(
            "typed", f"nothing was deleted: type the name of the broker, {name}, to clean it"
        )
    if chosen not in set(Cleanable):
        raise ValueError(f"what is {chosen!r}, must be one of {', '.join(Cleanable)}")
    work = view.console.changer.clean_broker(name, [Cleanable(chosen)])
    (done,) = await changing(view, "clean broker", name, chosen, "deleted", work)
    counted = "" if done.deleted is None else f": {done.deleted} deleted"
    return Done(f"/brokers/{segment(name)}", f"{name} has cleaned {done.what}{counted}.")


ROUTES = (
    PageRoute("/brokers/{broker}/settings", None, change),
    PageRoute("/brokers/{broker}/clean", None, clean),
    PageRoute("/brokers/{broker}", show_one),
    PageRoute("/brokers", show),
)
