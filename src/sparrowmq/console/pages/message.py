"""One message: its properties, its body, and what became of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from starlette.responses import Response

from sparrowmq.admin.lag import GroupLag
from sparrowmq.console.text import best_form, moment, segment, shown_body, shown_body_noted
from sparrowmq.console.view import Answer, Page, PageRoute, Panel, View, panels
from sparrowmq.protocol import properties as names
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import is_dlq_topic, is_retry_topic

FORMS = ("text", "json", "hex")
_MOST_GROUPS = 20


@dataclass(frozen=True, slots=True)
class Step:
    """Something that happened to the message."""

    time: datetime | None
    word: str
    words: str
    source: str
    """How it is known."""


@dataclass(frozen=True, slots=True)
class GroupState:
    """What a group has done with the message, by its progress."""

    group: str
    word: str
    words: str


async def show(view: View) -> Answer:
    """Everything about it."""
    message = await _message(view)
    topic = message.topic
    groups = view.console.sampler.figures.groups_of(topic)[:_MOST_GROUPS]
    lags = await panels(groups, lambda group: view.console.admin.lag(group, topic, owners=False))
    body, problem = _body(message)
    wanted = view.asked("body")
    form = wanted if wanted in FORMS else best_form(body)
    shown = shown_body(body, form) if not problem else shown_body_noted(b"", "text", problem)
    return Page(
        template="message.html",
        title=f"Message {message.msg_id}",
        area="messages",
        command=f"sparrowmq message get {topic} --id {message.msg_id}",
        values={
            "message": message,
            "id": view.names["id"],
            "body": shown,
            "forms": FORMS,
            "steps": steps(message),
            "states": states(message, lags),
            "properties": sorted(message.user_properties.items()),
            "own": sorted(
                (name, value)
                for name, value in message.properties.items()
                if name in names.SYSTEM_PROPERTIES
            ),
        },
    )


async def _message(view: View) -> MessageExt:
    return await view.console.admin.message(view.names["id"], view.asked("topic") or None)


def _body(message: MessageExt) -> tuple[bytes, str]:
    try:
        return message.body, ""
    except ProtocolError as error:
        return b"", f"This body cannot be read: {error}"


def steps(message: MessageExt) -> list[Step]:
    """What the message itself tells, in the order of time."""
    properties = message.properties
    record = "the record"
    found = [
        Step(moment(message.record.born_timestamp), "sent", f"by {_host(message)}", record),
        Step(
            moment(message.record.store_timestamp),
            "stored",
            f"in {message.topic}, {message.broker_name}/{message.queue_id}/{message.queue_offset}",
            record,
        ),
    ]
    due = properties.get(names.TIMER_OUT_MS) or properties.get(names.TIMER_DELIVER_MS, "")
    if due.isdecimal():
        found.append(Step(moment(int(due)), "visible", "after its delay", "its properties"))
    attempts = message.record.reconsume_times
    if attempts and is_retry_topic(message.topic):
        words = f"attempt {attempts}, first sent to {message.original_topic}"
        found.append(Step(None, "retried", words, "the retry topic"))
    if is_dlq_topic(message.topic):
        words = f"after {attempts} attempts, first sent to {message.original_topic}"
        found.append(
            Step(moment(message.record.store_timestamp), "dead", words, "the dead-letter topic")
        )
    return sorted(found, key=lambda each: each.time.timestamp() if each.time else float("inf"))


def _host(message: MessageExt) -> str:
    host, port = message.born_host
    return f"{host}:{port}"


def states(message: MessageExt, lags: dict[str, Panel[GroupLag]]) -> list[GroupState]:
    """What every group has done with it, as far as offsets tell."""
    found = []
    for group, answer in lags.items():
        if answer.value is None:
            found.append(GroupState(group, "?", answer.problem))
            continue
        queue = next((each for each in answer.value.queues if each.queue == message.queue), None)
        if queue is None or queue.consumer_offset is None:
            found.append(GroupState(group, "not begun", "it has no progress in this queue"))
        elif queue.consumer_offset > message.queue_offset:
            words = "it is past this message: consumed, filtered out, or sent back for a retry"
            found.append(GroupState(group, "passed", words))
        else:
            before = message.queue_offset - queue.consumer_offset
            found.append(GroupState(group, "waiting", f"{before:,} messages before it"))
    return found


async def download(view: View) -> Answer:
    """The whole body, as bytes that no browser interprets."""
    message = await _message(view)
    return Response(
        message.body,
        media_type="application/octet-stream",
        headers={"content-disposition": 'attachment; filename="message-body.bin"'},
    )


def link(message: MessageExt) -> str:
    """The address of a message's page: by its place, which is unique also among copies."""
    return f"/messages/{message.offset_msg_id}?topic={segment(message.topic)}"


def links(messages: Sequence[MessageExt]) -> dict[str, str]:
    """The addresses by offset id."""
    return {each.offset_msg_id: link(each) for each in messages}


ROUTES = (
    PageRoute("/messages/{id}/body", download),
    PageRoute("/messages/{id}", show),
)
