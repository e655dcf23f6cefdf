"""The list of topics, and creating one."""

from sparrowmq.admin.topics import TopicInfo
from sparrowmq.console.listing import part_of
from sparrowmq.console.text import segment
from sparrowmq.console.view import (
    Answer,
    Done,
    FieldError,
    Page,
    PageRoute,
    View,
    changing,
    entering,
    missing_parts,
    panels,
)

_MOST_QUEUES = 1_024


async def show(view: View) -> Answer:
    """List fifty topics; asks for the contents of only these."""
    console = view.console
    figures = console.sampler.figures.topics
    names = await console.names.topics()
    shows_all = view.asked("all") == "1"
    shown = [name for name in names if shows_all or console.names.is_plain_topic(name)]
    part = part_of(
        shown,
        view.query,
        orders={
            "rate": lambda name: figures[name].stored_per_s if name in figures else None,
            "messages": lambda name: figures[name].messages if name in figures else None,
        },
    )
    answers = await panels(part.rows, console.admin.topic)
    for name, answer in answers.items():
        if console.names.is_plain_topic(name):
            console.sampler.remember_topic(answer)
    return Page(
        template="topics.html",
        title="Topics",
        area="topics",
        command="sparrowmq topic list" + (" --all" if shows_all else ""),
        values={
            "part": part,
            "answers": answers,
            "missing": missing_parts(answers.values()),
            "shows_all": shows_all,
            "hidden": len(names) - len(shown),
            "kind_of": console.names.kind_of,
            "type_of": type_of,
            "groups_of": console.sampler.figures.groups_of,
        },
    )


def type_of(topic: TopicInfo) -> str:
    """The message type according to the attribute; names all types if brokers differ."""
    found = {each.attributes.get("message.type", "NORMAL").lower() for each in topic.settings}
    return ", ".join(sorted(found)) or "?"


async def create(view: View) -> Answer:
    """Create a topic on all brokers."""
    name, queues = view.entered("name"), view.entered("queues")
    if not queues.isdecimal() or not 1 <= int(queues) <= _MOST_QUEUES:
        raise FieldError(
            "queues", f"queues is {queues!r}, must be a number from 1 to {_MOST_QUEUES}"
        )
    work = view.console.changer.create_topic(name, queues=int(queues), replace=False)
    with entering("name"):
        done = await changing(
            view,
            "create topic",
            name,
            "",
            f"{queues} {'queue' if queues == '1' else 'queues'} on each broker",
            work,
        )
    view.console.names.forget()
    return Done(f"/topics/{segment(name)}", f"Topic {name} was created on {', '.join(done)}.")


ROUTES = (PageRoute("/topics", show, create),)
