"""Dead letters: messages that a group failed to handle in all its attempts; sending them again."""

import logging
import shlex
from collections import Counter
from collections.abc import Awaitable, Sequence
from hashlib import sha256

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.dead_letters import origin_of
from sparrowmq.admin.errors import AdminError
from sparrowmq.admin.resends import Resend, Resent
from sparrowmq.console.listing import part_of
from sparrowmq.console.pages.topic_messages import described, start, wanted_by
from sparrowmq.console.scan import cursor_text, scan
from sparrowmq.console.text import parse_time, segment
from sparrowmq.console.view import (
    EXPECTED,
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
_SLICE_BYTES = 64 * 1024

log = logging.getLogger("sparrowmq.console")


async def show(view: View) -> Answer:
    """List the groups that have dead letters."""
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
    """Show the dead letters of one group, the newest first."""
    name = view.names["group"]
    topic = await described(view.console.admin, dlq_topic(name))
    has_asked, until = wanted_by(view), view.asked("until")
    end_ms = parse_time(until, view.now_ms) if until else None
    found = await scan(
        view.console.admin,
        topic,
        await start(view, topic),
        newest_first=not view.asked("since"),
        wants=lambda each: (
            (end_ms is None or each.record.store_timestamp < end_ms) and has_asked(each)
        ),
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
    """Preview what would be sent, and where to; send it when the form confirms exactly that."""
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
    """How many resends had each result."""
    found = Counter(each.result.value for each in results)
    return {each.value: found[each.value] for each in Resend if found[each.value]}


def state_of(planned: Sequence[Resent], to: str) -> str:
    """The state that a preview is based on."""
    text = ";".join(f"{each.message_id} {each.result.value} {each.target}" for each in planned)
    return sha256(f"{to} {text}".encode()).hexdigest()[:24]


async def export(view: View) -> Answer:
    """Export all dead letters of a group as lines of JSON."""
    group, admin = view.names["group"], view.console.changer
    first = await admin.dead_letters(group, limit=1)
    if first.errors:
        silent = "; ".join(map(str, first.errors))
        raise AdminError(f"nothing was exported, because a part would be missing: {silent}")
    return Export(admin, group)


class Export(Response):
    """A file that is generated while it is downloaded: only a slice of it is in memory, however
    slow the reader is. If a broker goes away meanwhile, it ends in the middle, which browsers
    report as a failed download."""

    def __init__(self, admin: Admin, group: str) -> None:
        super().__init__(
            media_type="application/octet-stream",
            headers={"content-disposition": 'attachment; filename="dead-letters.jsonl"'},
        )
        del self.headers["content-length"]  # not known yet
        self._admin, self._group = admin, group

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        held = bytearray()

        async def flush(*, is_last: bool) -> None:
            part = bytes(held)
            held.clear()
            await send({"type": "http.response.body", "body": part, "more_body": not is_last})

        def write(line: str) -> Awaitable[None] | None:
            held.extend(line.rstrip().encode("utf-8", "replace") + b"\n")
            return flush(is_last=False) if len(held) >= _SLICE_BYTES else None

        try:
            await self._admin.export_dead_letters(self._group, write)
        except EXPECTED as error:
            log.warning("the export of dead letters of %s ended early: %s", self._group, error)
            return
        await flush(is_last=True)


ROUTES = (
    PageRoute("/dead-letters/{group}/resend", None, resend),
    PageRoute("/dead-letters/{group}/export", export),
    PageRoute("/dead-letters/{group}", show_group),
    PageRoute("/dead-letters", show),
)
