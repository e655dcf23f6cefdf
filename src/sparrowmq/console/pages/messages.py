"""Searching for messages: by id, by key, by place, by time."""

import shlex

from sparrowmq.admin.errors import NotFound
from sparrowmq.admin.messages import MOST_FOUND
from sparrowmq.admin.values import Listing
from sparrowmq.console.scan import parse_cursor
from sparrowmq.console.text import parse_time, segment
from sparrowmq.console.view import Answer, Done, Page, PageRoute, Panel, View, panel
from sparrowmq.protocol.message_ext import MessageExt

_MOST_TOPICS = 500


async def show(view: View) -> Answer:
    """Show the search form and the results."""
    if view.asked("id") and (by_id := await _by_id(view)) is not None:
        return by_id
    if view.asked("place") and view.asked("topic"):
        return await _by_place(view)
    if view.asked("topic") and view.asked("since") and not view.asked("key"):
        topic, since = segment(view.asked("topic")), segment(view.asked("since"))
        return Done(f"/topics/{topic}/messages?since={since}")
    topics = await panel(view.console.names.topics())
    found, problem = await _found(view)
    names = [name for name in topics.value or () if view.console.names.is_plain_topic(name)]
    return Page(
        template="messages.html",
        title="Messages",
        area="messages",
        command=_command(view),
        is_live=False,
        values={
            "topics": names[:_MOST_TOPICS],
            "found": found,
            "problem": problem,
            "most": MOST_FOUND,
        },
    )


def _command(view: View) -> str:
    """The equivalent shell command; none while no topic is chosen."""
    topic, key, message_id = view.asked("topic"), view.asked("key"), view.asked("id")
    words = ["sparrowmq", "message", "get", *filter(None, [topic])]
    if message_id:
        return shlex.join([*words, "--id", message_id])
    if not topic:
        return ""
    return shlex.join([*words, *(["--key", key] if key else ["--since", "-1h"])])


async def _by_id(view: View) -> Answer | None:
    """Go to the page of the message; None if the topic is needed to find it."""
    wanted, topic = view.asked("id"), view.asked("topic")
    try:
        message = await view.console.admin.message(wanted, topic or None)
    except (NotFound, ValueError):
        return None
    return Done(f"/messages/{segment(wanted)}?topic={segment(topic or message.topic)}")


async def _by_place(view: View) -> Answer:
    topic = view.asked("topic")
    ((queue, offset),) = list(parse_cursor(topic, view.asked("place")).items())[:1]
    message = await view.console.admin.read_message(queue, offset)
    return Done(f"/messages/{message.offset_msg_id}?topic={segment(topic)}")


async def _found(view: View) -> tuple[Panel[Listing[MessageExt]] | None, str]:
    """The messages found, and what is wrong or missing, in words."""
    if view.asked("id"):
        hint = "" if view.asked("topic") else " An id that a producer got needs the topic as well."
        return None, f"No message with id {view.asked('id')} was found.{hint}"
    if not view.asked("key"):
        return None, ""
    if not view.asked("topic"):
        return None, "A key is looked up in a topic: choose one."
    try:
        begin = parse_time(view.asked("since"), view.now_ms) if view.asked("since") else None
        end = parse_time(view.asked("until"), view.now_ms) if view.asked("until") else None
    except ValueError as error:
        return None, str(error)
    ask = view.console.admin.find_messages(
        view.asked("topic"), view.asked("key"), begin=begin, end=end
    )
    return await panel(ask), ""


ROUTES = (PageRoute("/messages", show),)
