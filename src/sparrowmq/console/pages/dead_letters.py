"""Dead letters: messages that a group failed to handle as often as it may."""

from sparrowmq.console.listing import part_of
from sparrowmq.console.pages.topic_messages import start, wanted_by
from sparrowmq.console.scan import cursor_text, scan
from sparrowmq.console.view import Answer, Page, PageRoute, View, panels
from sparrowmq.protocol.names import DLQ_PREFIX, dlq_topic

_ROWS = 50


async def show(view: View) -> Answer:
    """Groups that have any."""
    console = view.console
    names = [
        name.removeprefix(DLQ_PREFIX)
        for name in await console.names.topics()
        if name.startswith(DLQ_PREFIX)
    ]
    part = part_of(names, view.query)
    answers = await panels(part.rows, lambda group: console.admin.topic(dlq_topic(group)))
    return Page(
        template="dead_letters.html",
        title="Dead letters",
        area="dead-letters",
        command="sparrowmq dlq list",
        values={"part": part, "answers": answers},
    )


async def show_group(view: View) -> Answer:
    """Those of one group, the newest first."""
    name = view.names["group"]
    topic = await view.console.admin.topic(dlq_topic(name))
    positions = await start(view, topic)
    found = await scan(
        view.console.admin,
        topic,
        positions,
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
        },
    )


ROUTES = (
    PageRoute("/dead-letters/{group}", show_group),
    PageRoute("/dead-letters", show),
)
