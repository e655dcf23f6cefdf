"""Reading the messages of a topic in time order, across its queues, one part at a time.

Each queue is read in its own order, and the queues are merged by store time. A scan ends when it
has found enough, has looked at its budget of messages, or has run out of time; where it stopped in
every queue is the cursor from which the next scan continues, so that nothing is shown twice or left
out.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.topics import TopicInfo
from sparrowmq.console.view import EXPECTED
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt

BUDGET = 2_000
_TIME_S = 1.5
_CHUNK = 32
MOST_QUEUES = 64

Positions = Mapping[MessageQueue, int]
"""Newest first: the offset just past the next message to show. Otherwise: that message's own."""


@dataclass(frozen=True, slots=True)
class ScannedMessages:
    """The result of a scan."""

    messages: tuple[MessageExt, ...]
    positions: Positions
    """Where to continue."""
    scanned: int
    left: int
    """Messages that were not looked at."""
    problems: tuple[str, ...]

    @property
    def has_more(self) -> bool:
        """Whether it makes sense to continue."""
        return self.left > 0


@dataclass
class _Reader:
    """One queue."""

    queue: MessageQueue
    low: int
    high: int
    position: int
    newest_first: bool
    held: list[MessageExt] = field(default_factory=list)
    """Read and not taken yet, the next one last."""

    @property
    def left(self) -> int:
        """Messages from here to the end."""
        return self.position - self.low if self.newest_first else self.high - self.position

    async def fill(self, admin: Admin) -> None:
        """Read the next messages."""
        start = max(self.low, self.position - _CHUNK) if self.newest_first else self.position
        end = self.position if self.newest_first else min(self.high, start + _CHUNK)
        found: list[MessageExt] = []
        while start < end:
            part = await admin.read_messages(self.queue, start, limit=end - start)
            found += [each for each in part if each.queue_offset < end]
            if not part:
                break
            start = part[-1].queue_offset + 1
        if not found:  # deleted meanwhile
            self.position = self.low if self.newest_first else self.high
        self.held = found if self.newest_first else found[::-1]

    def take(self) -> MessageExt:
        """The next message."""
        message = self.held.pop()
        self.position = message.queue_offset if self.newest_first else message.queue_offset + 1
        return message


async def scan(
    admin: Admin,
    topic: TopicInfo,
    positions: Positions,
    *,
    newest_first: bool,
    wants: Callable[[MessageExt], bool],
    limit: int,
) -> ScannedMessages:
    """Up to `limit` messages that `wants` accepts. Without positions, all queues are read from
    their newest or oldest message on; with some, only the queues that have one."""
    readers = [
        _Reader(
            each.queue,
            each.min_offset,
            each.max_offset,
            _within(positions.get(each.queue), each.min_offset, each.max_offset, newest_first),
            newest_first,
        )
        for each in topic.queues
        if not positions or each.queue in positions
    ]
    return await _merged(admin, readers, newest_first, wants, limit)


def _within(position: int | None, low: int, high: int, newest_first: bool) -> int:
    if position is None:
        return high if newest_first else low
    return min(max(position, low), high)


async def _merged(
    admin: Admin,
    readers: list[_Reader],
    newest_first: bool,
    wants: Callable[[MessageExt], bool],
    limit: int,
) -> ScannedMessages:
    loop = asyncio.get_running_loop()
    end = loop.time() + _TIME_S
    problems = await _fill(admin, readers)
    live = [each for each in readers if each.held]
    messages: list[MessageExt] = []
    scanned = 0
    while live and len(messages) < limit and scanned < BUDGET and loop.time() < end:
        choose = max if newest_first else min
        reader = choose(live, key=lambda each: each.held[-1].store_timestamp)
        message = reader.take()
        scanned += 1
        if wants(message):
            messages.append(message)
        if not reader.held:
            problems += await _fill(admin, [reader])
            live = [each for each in live if each.held]
    left = sum(each.left for each in readers)
    stopped = {each.queue: each.position for each in readers}
    return ScannedMessages(tuple(messages), stopped, scanned, left, tuple(problems))


async def _fill(admin: Admin, readers: list[_Reader]) -> list[str]:
    """Read from several queues at once. Returns the failures in words."""
    limit = asyncio.Semaphore(8)

    async def one(reader: _Reader) -> str:
        try:
            async with limit:
                if reader.left > 0:
                    await reader.fill(admin)
        except EXPECTED as error:
            return f"{reader.queue.broker_name}/{reader.queue.queue_id}: {error}"
        return ""

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(one(reader)) for reader in readers]
    return [task.result() for task in running if task.result()]


def cursor_text(positions: Positions) -> str:
    """The cursor for addresses: `broker-a/0/123,broker-a/1/99`."""
    return ",".join(
        f"{queue.broker_name}/{queue.queue_id}/{offset}" for queue, offset in positions.items()
    )


def parse_cursor(topic: str, text: str) -> dict[MessageQueue, int]:
    """Parse what `cursor_text` makes. Raises ValueError."""
    found: dict[MessageQueue, int] = {}
    for part in text.split(",") if text else ():
        try:
            broker, queue, offset = part.strip().rsplit("/", 2)
            found[MessageQueue(topic, broker, int(queue))] = int(offset)
        except ValueError:
            raise ValueError(f"{part!r} is not a place; write broker-a/3/1841") from None
    return found
