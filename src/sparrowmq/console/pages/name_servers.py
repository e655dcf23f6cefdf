"""Name servers: what each knows, their settings, and their key-value pairs."""

import asyncio
import shlex

from sparrowmq.admin.errors import NotFound
from sparrowmq.admin.values import SettingChange
from sparrowmq.console.pages.brokers import APACHE_KEEPS, UNTIL_RESTART
from sparrowmq.console.previews import both_sides, change_preview, is_confirmed
from sparrowmq.console.text import segment
from sparrowmq.console.view import Answer, Done, Page, PageRoute, View, changing, panel

_HOME = "/nameservers"
_ALL = "name servers"
ORDERS = "ORDER_TOPIC_CONFIG"
"""The namespace that RocketMQ itself uses, for the queues of ordered topics."""


async def show(view: View) -> Answer:
    """Show all name servers, their settings, and one namespace."""
    admin, namespace = view.console.admin, view.asked("namespace") or ORDERS
    servers, settings, keys = await asyncio.gather(
        panel(admin.name_servers()),
        panel(admin.name_server_settings()),
        panel(_keys(view, namespace)),
    )
    return Page(
        template="name_servers.html",
        title="Name servers",
        area="brokers",
        command="sparrowmq nameserver list",
        values={
            "servers": servers,
            "settings": settings,
            "namespace": namespace,
            "keys": keys,
        },
    )


async def _keys(view: View, namespace: str) -> dict[str, str]:
    """The keys and values of a namespace; empty if it is unknown."""
    try:
        return await view.console.admin.key_values(namespace)
    except NotFound:
        return {}


# ---- changes


async def change(view: View) -> Answer:
    """Preview a changed setting; change it on all name servers when the form confirms that."""
    setting, value = view.entered("setting"), view.entered("value")
    admin, wanted = view.console.changer, {setting: value}
    changes = await admin.change_name_server_settings(wanted, dry_run=True)
    if not changes:
        return Done(_HOME, f"Nothing to change: {setting} is {value}.")
    if not is_confirmed(view, changes):
        is_kept = (await admin.name_server_settings())[0].is_kept
        pair = f"{setting}={value}"
        return change_preview(
            *(view, changes),
            title="Change the name servers",
            area="brokers",
            fields=("setting", "value"),
            back=_HOME,
            note=APACHE_KEEPS if is_kept else UNTIL_RESTART,
            command=shlex.join(["sparrowmq", "nameserver", "config", "set", pair, "--dry-run"]),
        )
    before, after = both_sides(changes)
    work = admin.change_name_server_settings(wanted)
    await changing(view, "change name servers", setting, before, after, work)
    return Done(_HOME, f"{setting} of the name servers is {value} now.")


async def set_key(view: View) -> Answer:
    """Preview a value; set it on all name servers when the form confirms exactly that."""
    namespace, key, value = (view.entered(each) for each in ("namespace", "key", "value"))
    if not namespace or not key:
        raise ValueError("enter the namespace and the key")
    admin = view.console.changer
    known = await _value(view, namespace, key)
    if known == value:
        return Done(_of(namespace), f"Nothing to change: {namespace}/{key} is {value}.")
    changes = [SettingChange(_ALL, f"{namespace}/{key}", known, value)]
    if not is_confirmed(view, changes):
        return change_preview(
            *(view, changes),
            title="Set a key of the name servers",
            area="brokers",
            fields=("namespace", "key", "value"),
            back=_of(namespace),
            command=shlex.join(["sparrowmq", "nameserver", "kv", "get", namespace, key]),
        )
    work = admin.set_key_value(namespace, key, value)
    await changing(view, "set key", f"{namespace}/{key}", known or "", value, work)
    return Done(_of(namespace), f"{namespace}/{key} is {value} now.")


async def delete_key(view: View) -> Answer:
    """Preview the deletion of a key; delete it when the form confirms exactly that."""
    namespace, key = view.entered("namespace"), view.entered("key")
    admin = view.console.changer
    known = await admin.key_value(namespace, key)
    changes = [SettingChange(_ALL, f"{namespace}/{key}", known, None)]
    if not is_confirmed(view, changes):
        words = ["sparrowmq", "nameserver", "kv", "delete", namespace, key, "--dry-run"]
        return change_preview(
            *(view, changes),
            title="Delete a key of the name servers",
            area="brokers",
            fields=("namespace", "key"),
            back=_of(namespace),
            command=shlex.join(words),
        )
    work = admin.delete_key_value(namespace, key)
    await changing(view, "delete key", f"{namespace}/{key}", known, "", work)
    return Done(_of(namespace), f"{namespace}/{key} was deleted.")


async def _value(view: View, namespace: str, key: str) -> str | None:
    try:
        return await view.console.changer.key_value(namespace, key)
    except NotFound:
        return None


def _of(namespace: str) -> str:
    return f"{_HOME}?namespace={segment(namespace)}"


ROUTES = (
    PageRoute("/nameservers", show),
    PageRoute("/nameservers/settings", None, change),
    PageRoute("/nameservers/keys", None, set_key),
    PageRoute("/nameservers/keys/delete", None, delete_key),
)
