"""One message: its properties, its body, and what happened to it."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from starlette.responses import Response

from sparrowmq.admin.message_traces import GroupEvent, GroupStanding, GroupState, GroupStep
from sparrowmq.client.sending.producer import Producer
from sparrowmq.console.pages.topic import PRODUCER
from sparrowmq.console.text import best_form, moment, plural, segment, shown_body, shown_body_noted
from sparrowmq.console.view import Answer, Done, Page, PageRoute, View, changing, panel
from sparrowmq.protocol import properties as names
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.message import Message
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import is_dlq_topic, is_retry_topic
from sparrowmq.protocol.trace import TraceStep

FORMS = ("text", "json", "hex")


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """Something that happened to the message."""

    time: datetime | None
    word: str
    words: str
    source: str
    """How this is known."""
    href: str = ""
    """The page of another copy of the message, which shows this."""

    @property
    def is_failure(self) -> bool:
        """Whether the message was not handled or sent; said in words, too."""
        return self.word == "dead" or self.word.endswith(", failed")


async def show(view: View) -> Answer:
    """Show everything about a message."""
    message = await _message(view)
    topic = message.topic
    traced = await panel(view.console.admin.trace(message.msg_id, topic))
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
            "steps": steps(
                message,
                traced.value.steps if traced.value else (),
                traced.value.groups if traced.value else (),
            ),
            "original": _original(view, message),
            "traced": traced,
            "is_plain": view.console.names.is_plain_topic(topic),
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


def _original(view: View, message: MessageExt) -> str:
    """The page of the message that this one is a retry or dead letter of, or nothing."""
    topic = message.original_topic
    if topic == message.topic or not view.console.names.is_plain_topic(topic):
        return ""
    return f"/messages/{segment(message.msg_id)}?topic={segment(topic)}"


def steps(
    message: MessageExt, traced: Iterable[TraceStep], groups: Iterable[GroupStanding] = ()
) -> list[TimelineStep]:
    """What the message itself, clients' traces and copies for groups say, in time order."""
    properties = message.properties
    record = "the record"
    found = [
        TimelineStep(moment(message.record.born_timestamp), "sent", f"by {_host(message)}", record),
        TimelineStep(
            moment(message.record.store_timestamp),
            "stored",
            f"in {message.topic}, {message.broker_name}/{message.queue_id}/{message.queue_offset}",
            record,
        ),
    ]
    due = properties.get(names.TIMER_OUT_MS) or properties.get(names.TIMER_DELIVER_MS, "")
    if due.isdecimal():
        found.append(TimelineStep(moment(int(due)), "visible", "after its delay", "its properties"))
    attempts = message.record.reconsume_times
    traced = list(traced)
    published = [each for each in traced if each.kind == "Pub" and each.is_ok is not False]
    if len(published) == 1:  # the same send: the record says from where, the producer how long
        told = _traced(published[0])
        words = ", ".join(filter(None, (found[0].words, told.words)))
        found[0] = TimelineStep(found[0].time, "sent", words, f"{record} and {told.source}")
        traced.remove(published[0])
    if attempts and is_retry_topic(message.topic):
        words = f"attempt {attempts}, first sent to {message.original_topic}"
        found.append(TimelineStep(None, "retried", words, "the retry topic"))
    if is_dlq_topic(message.topic):
        words = f"after {plural(attempts, 'attempt')}, first sent to {message.original_topic}"
        found.append(
            TimelineStep(
                moment(message.record.store_timestamp), "dead", words, "the dead-letter topic"
            )
        )
    found += [_traced(each) for each in traced]
    for group in groups:
        found += [_of_group(group.group, each) for each in group.steps]
        if group.state is GroupState.CONSUMED and group.source == "offsets":
            words = f"to group {group.group}, at a time that is not recorded"
            found.append(TimelineStep(None, "delivered", words, "the group's progress"))
    return sorted(found, key=lambda each: each.time.timestamp() if each.time else float("inf"))


def _host(message: MessageExt) -> str:
    host, port = message.born_host
    return f"{host}:{port}"


_TRACED = {
    "Pub": "sent",
    "SubBefore": "delivered",
    "SubAfter": "handled",
    "EndTransaction": "transaction ended",
    "Recall": "recalled",
}


def _traced(step: TraceStep) -> TimelineStep:
    word = _TRACED.get(step.kind, step.kind)
    if step.is_ok is False:
        word = f"{word}, failed"
    parts = [
        f"group {step.group}" if step.group else "",
        step.client,
        f"took {step.took_ms} ms" if step.took_ms is not None else "",
        f"retry {step.retries}" if step.retries else "",
        step.state if step.is_ok is not False else "",
    ]
    words = ", ".join(filter(None, parts))
    return TimelineStep(moment(step.time_ms) if step.time_ms else None, word, words, "a trace")


_SHOWN_IN = {
    GroupEvent.RETRIED: "the retry topic",
    GroupEvent.DUE: "the delayed messages",
    GroupEvent.DEAD: "the dead-letter topic",
}


def _of_group(group: str, step: GroupStep) -> TimelineStep:
    copy = step.copy
    failed = copy.record.reconsume_times
    words = {
        GroupEvent.RETRIED: f"in group {group}, retry {failed}",
        GroupEvent.DUE: f"in group {group}, retry {failed}",
        GroupEvent.DEAD: f"in group {group} after {plural(failed, 'attempt')}",
        GroupEvent.RESENT: f"to {copy.topic}, from the dead letters of group {group}",
    }
    return TimelineStep(
        moment(step.time_ms),
        step.event.value,
        f"{words[step.event]}, at {copy.place}",
        _SHOWN_IN.get(step.event, copy.topic),
        f"/messages/{segment(copy.offset_msg_id)}?topic={segment(copy.topic)}",
    )


async def deliver(view: View) -> Answer:
    """Let a live member of a group handle the message now."""
    message = await _message(view)
    group = view.entered("group")
    work = view.console.changer.deliver(message.offset_msg_id, group, topic=message.topic)
    target = f"{message.msg_id} to {group}"
    done = await changing(view, "deliver message", target, "", message.topic, work)
    to = f"/messages/{segment(view.names['id'])}?topic={segment(message.topic)}"
    return Done(to, f"{done.client_id}: {done.result}. {done.remark}".strip())


async def send_again(view: View) -> Answer:
    """Store a copy in the same topic, where every group gets it."""
    message = await _message(view)
    if not view.console.names.is_plain_topic(message.topic):
        raise ValueError(
            f"{message.topic} is RocketMQ's own; dead letters are sent again on their own page"
        )
    copy = Message(
        message.topic,
        message.body,
        tags=message.tags,
        keys=message.keys,
        properties=message.user_properties,
    )

    async def sent() -> str:
        async with Producer(PRODUCER, client=view.console.client) as producer:
            # Apache's broker finds a message by its unique id only after a moment.
            return (await producer.send(copy)).offset_msg_id

    found = await changing(view, "send again", message.topic, message.msg_id, "a copy", sent())
    to = f"/messages/{segment(found)}?topic={segment(message.topic)}"
    return Done(to, f"A copy of {message.msg_id} was stored in {message.topic}.")


async def download(view: View) -> Answer:
    """Download the whole body, as bytes that no browser interprets."""
    message = await _message(view)
    return Response(
        message.body,
        media_type="application/octet-stream",
        headers={"content-disposition": 'attachment; filename="message-body.bin"'},
    )


ROUTES = (
    PageRoute("/messages/{id}/deliver", None, deliver),
    PageRoute("/messages/{id}/send", None, send_again),
    PageRoute("/messages/{id}/body", download),
    PageRoute("/messages/{id}", show),
)
