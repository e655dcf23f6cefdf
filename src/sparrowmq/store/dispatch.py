"""Deriving from the log: queue units immediately, index entries in batches.

Live appends, recovery and replicas all come through `Dispatch`, so that a rebuilt queue is the
same as one that grew message by message.

Derived data may lag behind the log, but never lead it. A unit is only added to the queue's tail in
memory, and an index request only to a list: ticks write both, and checkpoints make them durable. A
crash loses them, and recovery dispatches the same records again.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import repeat

from sparrowmq.clock import Clock
from sparrowmq.protocol.indexed_properties import indexed_columns, indexed_properties
from sparrowmq.protocol.names import SCHEDULE_TOPIC, topic_fault
from sparrowmq.protocol.properties import DELAY_LEVEL, KEYS, TAGS, UNIQUE_KEY, decode_properties
from sparrowmq.protocol.record_batch import BatchedPuts
from sparrowmq.protocol.record_outline import RecordOutline
from sparrowmq.protocol.tags import cached_tag_code
from sparrowmq.store.consume_queue import UNIT, ConsumeQueue, QueueFiles
from sparrowmq.store.index.key_index import KeyIndex
from sparrowmq.store.trash import Trash

_NEW_FILE_COUNTS = 15
"""How many queues more a new file counts as: making it takes 0.3 ms, and 2 ms while the disk is
busy; writing to one takes 0.01 ms."""
_NEW_FILES_MS = 4
"""No further file is made after this time: on a busy disk 16 may take 30 ms."""


def unit_tag(
    topic: str, store_timestamp: int, properties: dict[str, str], delays_ms: Sequence[int]
) -> int:
    """The tag field of a record's unit, as Apache derives it when it rebuilds a queue."""
    if topic == SCHEDULE_TOPIC and (level := properties.get(DELAY_LEVEL)) is not None:
        number = min(int(level), len(delays_ms)) if level.isascii() and level.isdigit() else 0
        if number > 0:
            return store_timestamp + delays_ms[number - 1]
    return cached_tag_code(properties.get(TAGS))


class Dispatch:
    """All consume queues, and the key index."""

    def __init__(self, files: QueueFiles, index: KeyIndex, delays_ms: Sequence[int]) -> None:
        self.files = files
        self.index = index
        self._delays_ms = delays_ms
        self.queues: dict[tuple[str, int], ConsumeQueue] = {}
        self.dirty: deque[ConsumeQueue] = deque()
        """Queues with units that are only in memory, oldest first."""
        self.unsynced: list[ConsumeQueue] = []
        """Queues with units whose records no flush has taken yet."""
        self.dropped: dict[str, int] = {}
        """Deleted topics: their records before this log offset stay out of the queues."""

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, created if it is new. Raises ValueError for an invalid topic name."""
        found = self.queues.get((topic, queue_id))
        if found is None:
            found = ConsumeQueue(topic, queue_id, self.files)
            self.queues[topic, queue_id] = found
        return found

    def dispatch(
        self,
        queue: ConsumeQueue,
        log_offset: int,
        size: int,
        tags_code: int,
        uniq_key: str,
        keys: str,
        store_timestamp: int,
    ) -> None:
        """Add the record at `log_offset` as the next message of `queue`."""
        queue.tail += UNIT.pack(log_offset, size, tags_code)
        queue.max_offset += 1
        if not queue.is_noted:
            self._note(queue)
        if uniq_key or keys:
            self.index.add((queue.topic, uniq_key, keys, log_offset, store_timestamp))

    def _note(self, queue: ConsumeQueue) -> None:
        queue.is_noted = True
        if not queue.is_dirty:
            queue.is_dirty = True
            self.dirty.append(queue)
        if not queue.is_unsynced:
            queue.is_unsynced = True
            self.unsynced.append(queue)

    def take_unsynced(self) -> list[tuple[ConsumeQueue, int]]:
        """Queues that grew since the last call, and their ends now, for a flush."""
        taken, self.unsynced = self.unsynced, []
        for queue in taken:
            queue.is_unsynced = queue.is_noted = False
        return [(queue, queue.max_offset) for queue in taken]

    def dispatch_batch(
        self,
        queue: ConsumeQueue,
        log_offsets: Sequence[int],
        sizes: Sequence[int],
        messages: BatchedPuts,
        store_timestamp: int,
    ) -> None:
        """`dispatch` for all messages of a batch in one step."""
        queue.tail += b"".join(map(UNIT.pack, log_offsets, sizes, messages.tags_codes))
        queue.max_offset += len(sizes)
        if not queue.is_noted:
            self._note(queue)
        self.index.add_all(
            zip(
                repeat(queue.topic),
                messages.uniq_keys,
                messages.keys,
                log_offsets,
                repeat(store_timestamp),
            )
        )

    def redispatch(self, record: RecordOutline, *, queues: bool = True, index: bool = True) -> None:
        """Dispatch a record read back from the log, or received from a master."""
        if not record.is_delivered:
            return
        tag, uniq_key, keys = self._indexed(record)
        if not index:
            uniq_key = keys = ""
        queue = self._queue_of(record) if queues else None
        # It is nearly always the next one, and a call per record would cost noticeable time.
        if queue is not None and (
            record.queue_offset == queue.max_offset or self._align(queue, record)
        ):
            self.dispatch(
                queue, record.log_offset, record.size, tag, uniq_key, keys, record.store_timestamp
            )
            return
        if uniq_key or keys:
            self.index.add(
                (record.topic, uniq_key, keys, record.log_offset, record.store_timestamp)
            )

    def redispatch_run(self, records: Sequence[RecordOutline]) -> None:
        """`redispatch` for each: records in a row, received from a master.

        Nearly all are the next ones of queues that exist. Those are dispatched here without a call
        for each, and properties that differ only in the unique id are parsed together: half the
        time that `redispatch` needs.
        """
        queues, dropped, add = self.queues, self.dropped, self.index.add
        columns = indexed_columns([record.properties for record in records])
        for record, tag, uniq_key, keys in zip(records, *columns, strict=True):
            topic, log_offset = record.topic, record.log_offset
            queue = queues.get((topic, record.queue_id))
            if (
                queue is None
                or record.queue_offset != queue.max_offset
                or not record.is_delivered
                or topic == SCHEDULE_TOPIC
                or (dropped and log_offset < dropped.get(topic, 0))
            ):
                self.redispatch(record)
                continue
            queue.tail += UNIT.pack(log_offset, record.size, tag)
            queue.max_offset += 1
            if not queue.is_noted:
                self._note(queue)
            if uniq_key or keys:
                add((queue.topic, uniq_key, keys, log_offset, record.store_timestamp))

    def _indexed(self, record: RecordOutline) -> tuple[int, str, str]:
        """The tag field of a record's unit, its unique id and its keys."""
        if record.topic == SCHEDULE_TOPIC:
            properties = decode_properties(record.properties)
            tag = unit_tag(record.topic, record.store_timestamp, properties, self._delays_ms)
            return tag, properties.get(UNIQUE_KEY, ""), properties.get(KEYS, "")
        found, uniq_key, keys = indexed_properties(record.properties.decode("utf-8", "replace"))
        return cached_tag_code(found) if found else 0, uniq_key, keys

    def _queue_of(self, record: RecordOutline) -> ConsumeQueue | None:
        """The record's queue, created if it is new; None for a deleted topic or an invalid topic
        name."""
        if self.dropped and record.log_offset < self.dropped.get(record.topic, 0):
            return None
        found = self.queues.get((record.topic, record.queue_id))
        if found is None and record.queue_id >= 0 and topic_fault(record.topic) is None:
            found = self.queue(record.topic, record.queue_id)
        return found

    def _align(self, queue: ConsumeQueue, record: RecordOutline) -> bool:
        """Make the record's offset the queue's next one; False if its unit already exists."""
        offset = record.queue_offset
        if offset == queue.max_offset:
            return True
        if offset < queue.max_offset:
            unit = queue.unit(offset)
            if unit is not None and unit[0] == record.log_offset:
                return False
            queue.truncate(offset)
            return True
        if queue.max_offset == 0 or offset - queue.max_offset > self.files.units_per_file:
            # Everything older has expired or was dropped with its topic.
            queue.delete()
            queue.start_at(offset)
        else:
            # Messages in between are damaged: blank units preserve the offsets of later ones.
            blank = self.files.blank_unit(record.log_offset)
            queue.tail += blank * (offset - queue.max_offset)
            queue.max_offset = offset
        return True

    def write_tails(self, limit: int | None = None, monotonic: Clock | None = None) -> None:
        """Write units of up to `limit` queues, or of all: fewer if they need new files, and with
        `monotonic` if making those takes long.

        Raises DiskFull or OSError, losing nothing.
        """
        left, made = limit, self.files.made
        until_ms = 0 if monotonic is None else monotonic() + _NEW_FILES_MS
        while self.dirty and (left is None or left > 0):
            self.dirty[0].write_tail()
            self.dirty.popleft()
            if left is not None:
                new, made = self.files.made - made, self.files.made
                left -= 1 + new * _NEW_FILE_COUNTS
                if new and monotonic is not None and monotonic() >= until_ms:
                    return

    def forget(self, key: tuple[str, int]) -> None:
        """Delete a queue, in memory and on disk."""
        queue = self.queues.pop(key)
        if queue.is_dirty:
            self.dirty.remove(queue)
        queue.delete()

    def drop_topic(self, topic: str, before: int, trash: Trash) -> None:
        """Forget a topic's records before a log offset, and the queues without later ones.

        A master has no later ones. A slave may learn of the deletion when it already has messages
        of a topic created again under that name.
        """
        found = list(self.of_topic(topic))
        dropped = {queue for queue in found if not queue.reaches(before)}
        for queue in dropped:
            del self.queues[topic, queue.queue_id]
        self.dirty = deque(queue for queue in self.dirty if queue not in dropped)
        is_whole = len(dropped) == len(found)
        if is_whole and found:
            self.files.remove_topic(found[0].directory.rpartition("/")[0], trash)
        for queue in found:
            if queue not in dropped:
                queue.set_min(before, trash)
            elif is_whole:
                queue.start_at(0)  # a flush may still hold it
            else:
                queue.delete(trash)
        self.dropped[topic] = before

    def set_min(self, min_log_offset: int, trash: Trash | None = None) -> None:
        """Let the queues begin later, as records before `min_log_offset` are gone."""
        for queue in self.queues.values():
            queue.set_min(min_log_offset, trash)

    def forget_dropped(self, min_log_offset: int) -> None:
        """Forget deleted topics whose records have all expired."""
        for topic, log_offset in list(self.dropped.items()):
            if log_offset <= min_log_offset:
                del self.dropped[topic]

    def clamp_dropped(self, log_end: int) -> None:
        """Adjust to a log that was cut: records at offsets past its end will be new."""
        for topic, log_offset in self.dropped.items():
            self.dropped[topic] = min(log_offset, log_end)

    def of_topic(self, topic: str) -> Iterator[ConsumeQueue]:
        """The queues of a topic."""
        return (queue for queue in self.queues.values() if queue.topic == topic)
