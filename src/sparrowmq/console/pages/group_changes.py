"""Changes of a group: moving it to another place, copying its progress, pausing, deletion.

A move is shown queue by queue before it is made. The confirming form carries the state that the
preview is based on; if members made progress meanwhile that changes the result, the preview is
shown again instead.
"""

import asyncio
import shlex
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from sparrowmq.admin.errors import AdminError
from sparrowmq.admin.offsets import OffsetMove, ResetTo
from sparrowmq.admin.resets import JournaledReset, tripped_backlogs
from sparrowmq.console.previews import both_sides, change_preview, is_confirmed
from sparrowmq.console.scan import parse_cursor
from sparrowmq.console.setting_forms import (
    attributes,
    on_or_off,
    switch,
    update_command,
    whole,
)
from sparrowmq.console.text import instant, parse_time, plural, segment
from sparrowmq.console.view import (
    Answer,
    Done,
    FieldError,
    Page,
    PageRoute,
    View,
    changing,
    entering,
    panel,
)
from sparrowmq.protocol.message import MessageQueue

_FIELDS = ("topic", "to", "time", "place", "target")


def goal_of(view: View) -> tuple[ResetTo, str]:
    """Where the group should continue according to the form, also in words. Raises ValueError."""
    topic, to = view.entered("topic"), view.entered("to")
    if not topic:
        raise FieldError("topic", "choose the topic in which to move the group's progress")
    if to in ("earliest", "latest"):
        words = "the oldest message" if to == "earliest" else "the end, past everything stored"
        return ("earliest" if to == "earliest" else "latest"), words
    if to == "time":
        with entering("time"):
            time_ms = parse_time(view.entered("time"), view.now_ms)
        return time_ms, f"the first message stored at {instant(time_ms)} or later"
    if to == "place":
        with entering("place"):
            places = parse_cursor(topic, view.entered("place"))
        if not places:
            raise FieldError("place", "enter the queue and the offset, such as broker-a/3/1841")
        return places, view.entered("place")
    raise ValueError(f"to is {to!r}, must be earliest, latest, time or place")


async def reset(view: View) -> Answer:
    """Preview a move; make it when the form confirms exactly this move."""
    name, topic = view.names["group"], view.entered("topic")
    goal, words = goal_of(view)
    moves = await view.console.changer.reset_offsets(name, topic, goal, dry_run=True)
    state = state_of(moves)
    if view.entered("state") != state:
        return preview(
            *(view, moves, state, f"Reset {name}", f"to {words}"),
            command=_reset_command(view),
            consequences=await _consequences(view, topic, moves),
        )
    before, after = (offsets_text(moves, is_after) for is_after in (False, True))
    work = _move(view, name, topic, {each.queue: each.after for each in moves})
    await changing(view, "reset group", f"{name} in {topic}", before, after, work)
    queues = sum(each.before != each.after for each in moves)
    return Done(f"/groups/{segment(name)}", f"{name} was moved in {plural(queues, 'queue')}.")


@dataclass(frozen=True, slots=True)
class Consequences:
    """Whom a move concerns."""

    owners: Mapping[MessageQueue, str] = field(default_factory=dict)
    """Members that hold queues now."""
    backlogs: Sequence[str] = ()
    """Backlog limits that would be reached, in words."""
    unknown: Sequence[str] = ()
    """What could not be found out, and why."""


async def _consequences(view: View, topic: str, moves: Sequence[OffsetMove]) -> Consequences:
    name, admin = view.names["group"], view.console.admin
    members, info = await asyncio.gather(panel(admin.members(name)), panel(admin.topic(topic)))
    return Consequences(
        owners={
            queue: each.client_id for each in members.value or () for queue in each.queues or ()
        },
        backlogs=tripped_backlogs(info.value, name, moves) if info.value else (),
        unknown=[
            f"{what} is not known: {each.problem}"
            for what, each in (
                ("Who holds the queues", members),
                ("Whether a backlog limit would be reached", info),
            )
            if each.value is None
        ],
    )


async def _move(view: View, name: str, topic: str, to: Mapping[MessageQueue, int]) -> None:
    """Make exactly the previewed move, recording it first if there is a journal."""
    admin, journal = view.console.changer, view.console.journal
    if journal is None:
        await admin.reset_offsets(name, topic, to)
    else:
        await admin.reset_with_journal(name, topic, to, journal=journal, who=_who(view))


def _who(view: View) -> str:
    return f"{view.user.name if view.user else ''} (console)"


async def undo(view: View) -> Answer:
    """Preview the undo of the last reset; undo it when the form confirms exactly that."""
    name, journal = view.names["group"], view.console.journal
    last = await view.console.last_reset(name)
    if last is None or journal is None:
        raise ValueError(f"the journal has no reset of {name} that could be undone")

    def plan(*, force: bool, dry_run: bool) -> Awaitable[JournaledReset]:
        admin, who = view.console.changer, _who(view)
        return admin.undo_reset(
            name, last.id, journal=journal, who=who, force=force, dry_run=dry_run
        )

    gone_on = ""
    try:
        planned = await plan(force=False, dry_run=True)
    except AdminError as error:
        planned = await plan(force=True, dry_run=True)  # raises errors that force cannot override
        gone_on = str(error).partition("; nothing was changed")[0]
    state = state_of(planned.moves)
    is_agreed = not gone_on or view.entered("force") == "on"
    if view.entered("state") != state or not is_agreed:
        words = f"back to where it was before {instant(last.when)}"
        title = f"Undo the reset of {name}"
        command = f"sparrowmq group undo {name} --dry-run"
        return preview(
            *(view, planned.moves, state, title, words),
            topic=last.topic,
            command=command,
            gone_on=gone_on,
            consequences=await _consequences(view, last.topic, planned.moves),
        )
    work = plan(force=bool(gone_on), dry_run=False)
    before, after = (offsets_text(planned.moves, is_after) for is_after in (False, True))
    await changing(view, "undo reset", f"{name} in {last.topic}", before, after, work)
    return Done(f"/groups/{segment(name)}", f"The reset of {name} was undone.")


def _reset_command(view: View) -> str:
    to, place = view.entered("to"), []
    if to == "time":
        to = view.entered("time")
    elif to == "place":
        queue, _, to = view.entered("place").partition(",")[0].rpartition("/")
        place = ["--queue", queue]
    words = ["sparrowmq", "group", "reset", view.names["group"], "--topic", view.entered("topic")]
    return shlex.join([*words, *place, "--to", to, "--dry-run"])


def preview(
    view: View,
    moves: Sequence[OffsetMove],
    state: str,
    title: str,
    words: str,
    topic: str = "",
    *,
    command: str,
    gone_on: str = "",
    consequences: Consequences | None = None,
    button: str = "Move the group",
) -> Page:
    """Show every queue's offset before and after. `gone_on` says why an undo must be forced."""
    name = view.names["group"]
    topic = topic or view.entered("topic")
    return Page(
        template="reset.html",
        title=title,
        area="groups",
        command=command,
        is_live=False,
        values={
            "name": name,
            "topic": topic,
            "words": words,
            "moves": moves,
            "button": button,
            "has_topics": len({each.queue.topic for each in moves}) > 1,
            "skipped": sum(each.skipped for each in moves),
            "repeated": sum(each.repeated for each in moves),
            "state": state,
            "was_changed": view.entered("state") not in ("", state),
            "gone_on": gone_on,
            "consequences": consequences,
            "was_refused": bool(gone_on) and view.entered("state") == state,
            "fields": {field: view.entered(field) for field in _FIELDS},
        },
    )


def state_of(moves: Sequence[OffsetMove]) -> str:
    """The state that a preview is based on. Progress within messages that are skipped or repeated
    anyway changes it too: the numbers that were confirmed would no longer be right."""
    text = ";".join(f"{each.queue} {each.before} {each.after}" for each in moves)
    return sha256(text.encode()).hexdigest()[:24]


def offsets_text(moves: Sequence[OffsetMove], is_after: bool) -> str:
    """For the audit log."""
    return ", ".join(
        f"{each.queue.broker_name}/{each.queue.queue_id} {each.after if is_after else each.before}"
        for each in moves
    )


async def clone(view: View) -> Answer:
    """Preview copying this group's progress to another; copy it when the form confirms that."""
    name, target = view.names["group"], view.entered("target")
    topic = view.entered("topic") or None
    admin = view.console.changer
    with entering("target"):
        moves = await admin.clone_offsets(name, target, topic=topic, dry_run=True)
    if not moves:
        raise ValueError(f"{name} has no progress{f' in {topic}' if topic else ''} to be copied")
    state = state_of(moves)
    if view.entered("state") != state:
        words = ["sparrowmq", "group", "clone", name, target]
        words += ["--topic", topic] if topic else []
        return preview(
            *(view, moves, state, f"Clone the progress of {name}"),
            f"{target} goes on where {name} is",
            topic=topic or "all topics",
            command=shlex.join([*words, "--dry-run"]),
            button=f"Move {target}",
        )
    before, after = (offsets_text(moves, is_after) for is_after in (False, True))
    work = admin.clone_offsets(name, target, topic=topic)
    await changing(view, "clone group", f"{name} to {target}", before, after, work)
    view.console.names.forget()
    return Done(f"/groups/{segment(target)}", f"{target} goes on where {name} is.")


async def pause(view: View) -> Answer:
    """Stop or resume deliveries to the group, in all topics or in one."""
    name, topic = view.names["group"], view.entered("topic") or None
    admin, is_paused = view.console.changer, view.entered("consume") != "on"
    work = (admin.pause_group if is_paused else admin.resume_group)(name, topic=topic)
    word, where = ("pause", "resume")[not is_paused], f" in {topic}" if topic else ""
    await changing(view, f"{word} group", name + where, "", "paused" if is_paused else "", work)
    said = "gets no more messages; those it has are still handled" if is_paused else "goes on"
    return Done(f"/groups/{segment(name)}", f"{name}{where} {said}.")


async def update(view: View) -> Answer:
    """Preview changed settings; make the change when the form confirms this preview."""
    name, wanted = view.names["group"], _wanted(view)
    if not any(value is not None for value in wanted.values()):
        raise ValueError("nothing to change: enter retries, or choose another setting")
    admin, back = view.console.changer, f"/groups/{segment(name)}"
    changes = await admin.update_group(name, **wanted, dry_run=True)
    if not changes:
        return Done(back, f"Nothing to change: {name} is like that.")
    if not is_confirmed(view, changes):
        return change_preview(
            *(view, changes),
            title=f"Change group {name}",
            area="groups",
            fields=_SETTINGS,
            back=back,
            command=_update_command(name, wanted),
            note=_OWN_LIMIT if wanted["retries"] is not None else "",
        )
    before, after = both_sides(changes)
    await changing(view, "update group", name, before, after, admin.update_group(name, **wanted))
    return Done(back, f"{name} was changed.")


_SETTINGS = ("retries", "retry_queues", "consume", "broadcast", "order", "attributes")
_OWN_LIMIT = "Where a consumer has a limit of its own for retries, that one counts instead."


def _wanted(view: View) -> dict[str, Any]:
    """The arguments of `Admin.update_group`. Raises FieldError."""
    return {
        "retries": whole(view, "retries"),
        "retry_queues": whole(view, "retry_queues", 1),
        "may_consume": switch(view, "consume"),
        "may_broadcast": switch(view, "broadcast"),
        "orderly": switch(view, "order"),
        "attributes": attributes(view) or None,
    }


def _update_command(name: str, wanted: dict[str, Any]) -> str:
    options = {
        "--retries": wanted["retries"],
        "--retry-queues": wanted["retry_queues"],
        "--consume": on_or_off(wanted["may_consume"]),
        "--broadcast": on_or_off(wanted["may_broadcast"]),
        "--order": on_or_off(wanted["orderly"]),
    }
    return update_command("group", name, options, wanted["attributes"] or {})


async def delete(view: View) -> Answer:
    """Delete an offline group, if its name was typed."""
    name = view.names["group"]
    if view.entered("typed") != name:
        raise FieldError(
            "typed", f"nothing was deleted: type the name of the group, {name}, to delete it"
        )
    found = await panel(view.console.admin.lag(name, owners=False))
    before = "?" if found.value is None else f"{found.value.lag:,} unread messages"
    work = view.console.changer.delete_group(name)
    done = await changing(view, "delete group", name, before, "deleted", work)
    view.console.names.forget()
    return Done("/groups", f"Group {name} was deleted on {', '.join(done)}.")


ROUTES = (
    PageRoute("/groups/{group}/reset", None, reset),
    PageRoute("/groups/{group}/undo", None, undo),
    PageRoute("/groups/{group}/clone", None, clone),
    PageRoute("/groups/{group}/pause", None, pause),
    PageRoute("/groups/{group}/update", None, update),
    PageRoute("/groups/{group}/delete", None, delete),
)
