"""Queues and places as people write them: `broker-a/3`, `broker-a/3/1841`; and reset targets.

Used by options of several commands, and by everything that prints a queue.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

import click

from sparrowmq.cli.option_types import Moment
from sparrowmq.protocol.message import MessageQueue

MAX_OFFSET = 2**63 - 1


class QueueName(NamedTuple):
    """A queue, of a topic given by another option."""

    broker: str
    queue_id: int

    def of(self, topic: str) -> MessageQueue:
        """The queue itself."""
        return MessageQueue(topic, self.broker, self.queue_id)


class QueueType(click.ParamType[QueueName]):
    """`broker-a/3`."""

    name = "queue"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> QueueName:
        """The queue's broker and number."""
        if isinstance(value, QueueName):
            return value
        broker, slash, number = str(value).rpartition("/")
        if not slash or not broker or not number.isascii() or not number.isdigit():
            self.fail(f"{value!r} is not a queue; write broker-a/3", param, ctx)
        return QueueName(broker, int(number))


class Goal(click.ParamType[Any]):
    """Where a group continues: `earliest`, `latest`, a time, or an offset."""

    name = "place"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | datetime | int:
        """A word, a time, or a number for an offset."""
        if isinstance(value, datetime | int) or value in ("earliest", "latest"):
            found: str | datetime | int = value
            return found
        text = str(value)
        # A year alone looks like an offset, so a date needs its month and day.
        if text.isascii() and text.isdigit():
            if int(text) > MAX_OFFSET:
                self.fail(f"{value!r} is not an offset, the largest is {MAX_OFFSET}", param, ctx)
            return int(text)
        try:
            return Moment().convert(value, param, ctx)
        except click.BadParameter:
            allowed = "earliest, latest, an offset such as 1841, or a time such as 2026-11-15T13:30"
            self.fail(f"{value!r} is not a place; write {allowed}, -2h or now", param, ctx)


class Steps(click.ParamType[int]):
    """`+1` or `-100`: this many messages forward or back."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number, which is not 0."""
        try:
            steps = int(value)
        except ValueError:
            steps = 0
        if steps == 0 or abs(steps) > MAX_OFFSET:
            self.fail(f"{value!r} is not a number of messages; write +1 or -100", param, ctx)
        return steps


def chosen_queues(topic: str, names: Iterable[QueueName]) -> list[MessageQueue]:
    """The queues of a topic that are named in options."""
    return [each.of(topic) for each in names]
