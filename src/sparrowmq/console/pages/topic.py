"""One topic: its brokers, its queues, its consumer groups; changing and deleting it."""

import asyncio
from typing import Any

from sparrowmq.client.sending.producer import Producer
from sparrowmq.console.charts import chart
from sparrowmq.console.previews import both_sides, change_preview, is_confirmed
from sparrowmq.console.setting_forms import attributes, switch, update_command, whole
from sparrowmq.console.text import plural, segment
from sparrowmq.console.view import (
    Answer,
    Done,
    FieldError,
    Page,
    PageRoute,
    View,
    changing,
    panel,
)
from sparrowmq.protocol.message import Message

TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")
_PERMS = {6: "read and write", 4: "read only", 2: "write only"}
PRODUCER = "sparrowmq-console"
_FEWER = "Messages in queues that readers no longer see are not delivered."


async def show(view: View) -> Answer:
    """Show settings, queues, groups and the rate."""
    console, name = view.console, view.names["topic"]
    console.sampler.seen_topics.mark(name)
    topic, readers = await asyncio.gather(
        panel(console.admin.topic(name)), panel(console.admin.topic_readers(name))
    )
    if topic.value is None:
        await console.admin.route(name)  # raises NotFound or TopicAway, which is another page
    elif console.names.is_plain_topic(name):
        console.sampler.remember_topic(topic)
    key = f"stored/{name}"
    return Page(
        template="topic.html",
        title=f"Topic {name}",
        area="topics",
        command=f"sparrowmq topic show {name}",
        values={
            "name": name,
            "kind": console.names.kind_of(name),
            "topic": topic,
            "readers": readers,
            "perms": _PERMS,
            "types": TYPES,
            "span": view.span,
            "chart": chart(
                *(console.history, "stored", "Messages stored", "per second"),
                *([("stored", key)], view.span, view.now_ms),
            ),
        },
    )


# ---- changes


async def preview_update(view: View) -> Answer:
    """Preview an update; make it when the form confirms this preview."""
    name, wanted = view.names["topic"], _wanted(view)
    if not any(value is not None for value in wanted.values()):
        raise ValueError("nothing to change: enter queues, or choose what is allowed")
    admin, back = view.console.changer, f"/topics/{segment(name)}"
    changes = await admin.update_topic(name, **wanted, dry_run=True)
    if not changes:
        return Done(back, "Nothing to change: the topic is like that.")
    if not is_confirmed(view, changes):
        fewer = any(
            each.setting == "read_queues" and int(each.after or 0) < int(each.before or 0)
            for each in changes
        )
        return change_preview(
            *(view, changes),
            title=f"Change topic {name}",
            area="topics",
            fields=_FIELDS,
            back=back,
            command=_command(name, wanted),
            warning=_FEWER if fewer else "",
        )
    work = admin.update_topic(name, **wanted)
    before, after = both_sides(changes)
    await changing(view, "update topic", name, before, after, work)
    return Done(back, f"Topic {name} was changed.")


_FIELDS = ("queues", "read_queues", "write_queues", "perm", "order", "type", "attributes")
_TYPE = "message.type"


def _wanted(view: View) -> dict[str, Any]:
    """The arguments of `Admin.update_topic`. Raises FieldError."""
    changed = attributes(view)
    if kind := view.entered("type"):
        if kind not in TYPES:
            raise FieldError("type", f"type is {kind[:40]!r}, must be one of {', '.join(TYPES)}")
        if _TYPE in changed:
            raise FieldError("attributes", f"choose the type, or give the attribute {_TYPE}")
        changed[_TYPE] = kind
    return {
        "queues": whole(view, "queues", 1),
        "read_queues": whole(view, "read_queues"),
        "write_queues": whole(view, "write_queues"),
        "perm": whole(view, "perm"),
        "order": switch(view, "order"),
        "attributes": changed or None,
    }


def _command(name: str, wanted: dict[str, Any]) -> str:
    options = {f"--{key.replace('_', '-')}": wanted[key] for key in _NUMBERS}
    command = update_command("topic", name, options, wanted["attributes"] or {})
    if wanted["order"] is None:
        return command
    return f"{command} --{'order' if wanted['order'] else 'no-order'}"


_NUMBERS = ("queues", "read_queues", "write_queues", "perm")


async def delete(view: View) -> Answer:
    """Delete the topic, if its name was typed."""
    name = view.names["topic"]
    if view.entered("typed") != name:
        raise FieldError(
            "typed", f"nothing was deleted: type the name of the topic, {name}, to delete it"
        )
    found = await panel(view.console.admin.topic(name))
    before = "?" if found.value is None else plural(found.value.messages, "message")
    work = view.console.changer.delete_topic(name)
    done = await changing(view, "delete topic", name, before, "deleted", work)
    view.console.names.forget()
    return Done("/topics", f"Topic {name} was deleted on {', '.join(done)}.")


async def send(view: View) -> Answer:
    """Send a test message."""
    name = view.names["topic"]
    message = Message(
        name,
        (view.form.get("body") or ("",))[0].encode(),
        tags=view.entered("tag") or None,
        keys=view.entered("key"),
    )

    async def sent() -> str:
        async with Producer(PRODUCER, client=view.console.client) as producer:
            # Apache's broker finds a message by its unique id only after a moment.
            return (await producer.send(message)).offset_msg_id

    found = await changing(view, "send message", name, "", f"{len(message.body)} bytes", sent())
    to = f"/messages/{segment(found)}?topic={segment(name)}"
    return Done(to, f"The message was stored in {name}.")


ROUTES = (
    PageRoute("/topics/{topic}/update", None, preview_update),
    PageRoute("/topics/{topic}/delete", None, delete),
    PageRoute("/topics/{topic}/send", None, send),
    PageRoute("/topics/{topic}", show),
)
