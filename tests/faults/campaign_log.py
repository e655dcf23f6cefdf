"""The contents of a broker's log, read from its files: the position of each campaign message.

Says what a power cut took, what retention deleted, and which message a committed offset passed.
"""

from collections import defaultdict
from collections.abc import Iterator

from sparrowmq.disk.disk import Disk
from sparrowmq.protocol.record import Record
from sparrowmq.store.files import StoreFiles
from sparrowmq.store.recovery.log_scan import FileEnd, Hole
from tests.faults.campaign import Cut, identify
from tests.faults.checker import MessageId


class LogIndex:
    """Grows with the log; goes back with it."""

    def __init__(self) -> None:
        self._end = 0
        self._places: dict[MessageId, set[int]] = defaultdict(set)
        self._at: dict[int, MessageId] = {}
        self._queues: dict[tuple[str, int], dict[int, MessageId]] = defaultdict(dict)

    def messages(self) -> set[MessageId]:
        """Those of which there is a record."""
        return set(self._places)

    def in_queue(self, topic: str, queue_id: int, below: int) -> Iterator[MessageId]:
        """What lies below an offset of a queue."""
        for offset, message in self._queues[topic, queue_id].items():
            if offset < below:
                yield message

    def read(self, disk: Disk) -> None:
        """Read the records added to the log."""
        starts = StoreFiles(disk).log_starts()
        if not starts:
            return
        self._end = max(self._end, starts[0])
        for found in StoreFiles(disk).scan(self._end):
            match found:
                case Record():
                    self._add(found)
                    self._end = found.log_offset + found.size
                case FileEnd():
                    self._end = found.next_start
                case Hole(is_tail=False):
                    self._end = found.end
                case Hole():
                    return

    def _add(self, record: Record) -> None:
        message = identify(bytes(record.body))
        if message is not None:
            self._places[message].add(record.log_offset)
            self._at[record.log_offset] = message
            self._queues[record.topic, record.queue_id][record.queue_offset] = message

    def cut(self, at_s: float, after: Disk) -> Cut:
        """The power failed: which messages have no record left, and which lost one? Whatever a
        store believes to be durable, everything is read again."""
        before = self._at.copy()
        self._end = 0
        self._places.clear()
        self._at.clear()
        self.read(after)
        copied = {one for place, one in before.items() if self._at.get(place) != one}
        return Cut(at_s, {*before.values()} - self.messages(), copied)

    def expire(self, disk: Disk) -> set[MessageId]:
        """Files were deleted: which messages have no record left?"""
        first = min(StoreFiles(disk).log_starts(), default=0)
        dropped = self._drop([place for place in self._at if place < first])
        return {message for message in dropped if message not in self._places}

    def _drop(self, places: list[int]) -> set[MessageId]:
        dropped = set()
        for place in places:
            message = self._at.pop(place)
            dropped.add(message)
            self._places[message].discard(place)
            if not self._places[message]:
                del self._places[message]
        return dropped

    def forget_topic(self, topic: str) -> None:
        """It was deleted: its offsets mean nothing any more."""
        for name, queue_id in [*self._queues]:
            if name == topic:
                del self._queues[name, queue_id]
