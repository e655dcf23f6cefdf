"""Dead letters: messages that a group failed to handle as often as it may; sending them again."""

import shlex
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256

from starlette.responses import Response

from sparrowmq.admin.dead_letters import origin_of
from sparrowmq.admin.resends import Resend, Resent
from sparrowmq.console.listing import part_of
from sparrowmq.console.pages.topic_messages import start, wanted_by
from sparrowmq.console.scan import cursor_text, scan
from sparrowmq.console.text import segment
from sparrowmq.console.view import (
    Answer,
    Done,
    Page,
    PageRoute,
    View,
    changing,
    missing_parts,
    panels,
)
from sparrowmq.protocol.names import dlq_topic

_ROWS = 50
_DAY_MS = 86_400_000
_TARGETS = ("group", "topic")


async def show(view: View) -> Answer:
    """Groups that have any."""
    admin, day_ago = view.console.admin, view.now_ms - _DAY_MS
    part = part_of(await admin.dead_letter_groups(), view.query)
    answers = await panels(part.rows, lambda group: admin.count_dead_letters(group, day_ago))
    return Page(
        template="dead_letters.html",
        title="Dead letters",
        area="dead-letters",
        command="sparrowmq dlq list",
        values={"part": part, "answers": answers, "missing": missing_parts(answers.values())},
    )


async def show_group(view: View) -> Answer:
    """Those of one group, the newest first."""
    name = view.names["group"]
    topic = await view.console.admin.topic(dlq_topic(name))
    found = await scan(
        view.console.admin,
        topic,
        await start(view, topic),
        newest_first=not view.asked("since"),
        wants=wanted_by(view),
        limit=_ROWS,
    )
    return Page(
        template="dead_letters_group.html",
        title=f"Dead letters of {name}",
        area="dead-letters",
        command=f"sparrowmq dlq show {name}",
        is_live=False,
        values={
            "name": name,
            "topic": topic,
            "found": found,
            "cursor": cursor_text(found.positions),
            "origin_of": origin_of,
        },
    )


def _command(name: str, to: str, ids: Sequence[str]) -> str:
    chosen = [word for each in ids for word in ("--id", each)]
    return shlex.join(["sparrowmq", "dlq", "resend", name, *chosen, "--to", to, "--dry-run"])


async def resend(view: View) -> Answer:
    """Preview what would be sent to whom; send when the form confirms exactly that."""
    name, to = view.names["group"], view.entered("to") or "group"
    ids = view.form.get("id", ())
    if to not in _TARGETS:
        raise ValueError(f"to is {to!r}, must be group or topic")
    if not ids:
        raise ValueError("nothing was sent: select the dead letters to send again")
    admin = view.console.changer
    planned = await admin.resend_dead_letters(name, ids=ids, to=to, dry_run=True)
    state = state_of(planned, to)
    if view.entered("state") != state:
        return Page(
            template="resend.html",
            title=f"Send dead letters of {name} again",
            area="dead-letters",
            command=_command(name, to, ids),
            is_live=False,
            values={
                "name": name,
                "to": to,
                "ids": ids,
                "planned": planned,
                "counts": counts(planned),
                "state": state,
                "was_changed": bool(view.entered("state")),
            },
        )
    work = admin.resend_dead_letters(name, ids=ids, to=to)
    before = f"{len(planned)} selected"
    sent = await changing(view, "resend dead letters", name, before, f"to its {to}", work)
    words = ", ".join(f"{count} {word}" for word, count in counts(sent).items())
    view.record("resend dead letters", name, before, words, "finished")
    return Done(f"/dead-letters/{segment(name)}", f"Dead letters of {name}: {words}.")


def counts(results: Sequence[Resent]) -> dict[str, int]:
    """How many had which result."""
    found = Counter(each.result.value for each in results)
    return {each.value: found[each.value] for each in Resend if found[each.value]}


def state_of(planned: Sequence[Resent], to: str) -> str:
    """What a preview was made from."""
    text = ";".join(f"{each.message_id} {each.result.value} {each.target}" for each in planned)
    return sha256(f"{to} {text}".encode()).hexdigest()[:24]


async def export(view: View) -> Answer:
    """All of them as lines of JSON, for a file."""
    lines: list[str] = []
    await view.console.changer.export_dead_letters(view.names["group"], lines.append)
    return Response(
        "\n".join([*(line.rstrip() for line in lines), ""]),
        media_type="application/octet-stream",
        headers={"content-disposition": 'attachment; filename="dead-letters.jsonl"'},
    )


ROUTES = (
    PageRoute("/dead-letters/{group}/resend", None, resend),
    PageRoute("/dead-letters/{group}/export", export),
    PageRoute("/dead-letters/{group}", show_group),
    PageRoute("/dead-letters", show),
)
