"""The messages of a topic: newest first, or from a time or a place onward."""

import asyncio
import shlex
from collections.abc import Callable
from urllib.parse import urlencode

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.errors import NoBrokerAnswers
from sparrowmq.admin.topics import TopicInfo
from sparrowmq.console.listing import MOST_PATTERN, matches
from sparrowmq.console.scan import (
    MOST_QUEUES,
    Positions,
    cursor_text,
    parse_cursor,
    scan,
)
from sparrowmq.console.text import parse_time
from sparrowmq.console.view import Answer, Page, PageRoute, View
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt

_ROWS = 50
_LEAST_QUEUES_TEXT = f"choose a queue: a topic with more than {MOST_QUEUES} is read one by one"


async def show(view: View) -> Answer:
    """Show a page of messages, and where the next page begins."""
    name = view.names["topic"]
    view.console.sampler.seen_topics.mark(name)
    topic = await described(view.console.admin, name)
    order = view.asked("order")
    newest_first = order != "oldest" and not view.asked("since")
    positions: Positions = {}
    problem = ""
    try:
        positions = await start(view, topic)
    except ValueError as error:
        problem = str(error)
    found = None
    if not problem:
        found = await scan(
            view.console.admin,
            topic,
            positions,
            newest_first=newest_first,
            wants=wanted_by(view),
            limit=_ROWS,
        )
    return Page(
        template="topic_messages.html",
        title=f"Messages of {name}",
        area="topics",
        command=_command(view, name),
        is_live=not view.asked("at"),
        values={
            "name": name,
            "topic": topic,
            "found": found,
            "problem": problem,
            "newest_first": newest_first,
            "tail": tail_link(view),
            "cursor": cursor_text(found.positions) if found else "",
        },
    )


async def described(admin: Admin, name: str) -> TopicInfo:
    """What brokers say about a topic; if none of them answers, only that. Raises NotFound,
    TopicAway."""
    try:
        return await admin.topic(name)
    except NoBrokerAnswers as error:
        return TopicInfo(name=name, settings=(), queues=(), stored_per_s=0.0, errors=error.errors)


def _command(view: View, topic: str) -> str:
    key, queue = view.asked("key"), view.asked("queue")
    if view.asked("tail") == "1":
        tag = ["--filter", view.asked("tag")] if view.asked("tag") else []
        return shlex.join(["sparrowmq", "message", "tail", topic, *tag])
    words = ["sparrowmq", "message", "get", topic]
    if key:
        words += ["--key", key]
    elif queue:
        words += ["--queue", queue]
    else:
        words += ["--since", view.asked("since") or "-1h"]
    return shlex.join([*words, "--limit", str(_ROWS)])


def tail_link(view: View) -> str:
    """The link that follows the topic with the same filter, from the newest messages on."""
    kept = {name: view.asked(name) for name in ("queue", "tag", "key") if view.asked(name)}
    return f"?{urlencode({**kept, 'tail': '1'})}"


async def start(view: View, topic: TopicInfo) -> Positions:
    """Where the scan begins in every queue; empty to start at the ends. Raises ValueError."""
    if view.asked("at"):
        return parse_cursor(topic.name, view.asked("at"))
    queues = [each.queue for each in topic.queues]
    if view.asked("queue"):
        queues = [chosen(queues, view.asked("queue"))]
    if len(queues) > MOST_QUEUES:
        raise ValueError(_LEAST_QUEUES_TEXT)
    since = view.asked("since") or view.asked("until")
    if since:
        time_ms = parse_time(since, view.now_ms)
        admin = view.console.admin
        offsets = await asyncio.gather(*(admin.offset_at(queue, time_ms) for queue in queues))
        return dict(zip(queues, offsets, strict=True))
    if view.asked("queue"):
        held = next(each for each in topic.queues if each.queue == queues[0])
        is_oldest = view.asked("order") == "oldest"
        return {queues[0]: held.min_offset if is_oldest else held.max_offset}
    return {}


def chosen(queues: list[MessageQueue], text: str) -> MessageQueue:
    """The queue called `broker-a/3`. Raises ValueError."""
    for queue in queues:
        if f"{queue.broker_name}/{queue.queue_id}" == text:
            return queue
    raise ValueError(f"{text!r} is not a queue of this topic; write broker-a/3")


def wanted_by(view: View) -> Callable[[MessageExt], bool]:
    """The filter of the form."""
    tag, key = view.asked("tag"), view.asked("key")[:MOST_PATTERN]

    def wants(message: MessageExt) -> bool:
        if tag and (message.tags or "") != tag:
            return False
        return not key or any(matches(key, each) for each in message.keys)

    return wants


ROUTES = (PageRoute("/topics/{topic}/messages", show),)
