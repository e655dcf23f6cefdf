"""Progress of a consumer: kept in memory, persisted now and then where it belongs."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from sparrowmq.client.broker_calls import (
    UNKNOWN_EPOCH,
    Position,
    commit_offset,
    committed_offset,
    max_offset,
    offset_at,
)
from sparrowmq.client.client import Client
from sparrowmq.client.errors import ClientError
from sparrowmq.client.group.member_settings import MemberSettings
from sparrowmq.disk.atomic_file import replace_path
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.heartbeat import ConsumeFromWhere
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import is_retry_topic
from sparrowmq.protocol.offsets_body import LocalProgress

# Where a newly assigned queue starts.


HALF_HOUR_MS = 30 * 60 * 1000
_BEGINNING = Position(0, UNKNOWN_EPOCH)
"""The broker corrects it to its minimum; it is good in every epoch."""


async def start_at(
    client: Client,
    settings: MemberSettings,
    now_ms: int,
    queue: MessageQueue,
    stored: Position | None,
) -> Position:
    """Where a queue begins for a consumer that started at `now_ms`. Raises as `start_offset`."""
    if settings.starts_at_0:
        return stored if stored is not None and stored.offset >= 0 else _BEGINNING
    at_ms = settings.from_timestamp_ms
    default_ms = now_ms - HALF_HOUR_MS
    since_ms = default_ms if at_ms is None else at_ms
    start = await start_offset(client, queue, stored, settings.from_where, since_ms)
    if stored is None and start.offset > 0 and settings.begins_at_the_end:
        # Apache's brokers report nothing stored while a queue is empty. If its first message came
        # before we asked for the end, they answer 0 now.
        again = await committed_offset(client, settings.group, queue, young_is_0=True)
        return start if again is None else again
    return start


async def start_offset(
    client: Client,
    queue: MessageQueue,
    stored: Position | None,
    where: ConsumeFromWhere,
    timestamp_ms: int,
) -> Position:
    """A stored offset wins, 0 counts. Without one the rule decides; retry topics are special:
    what is in them was given back by this group and must not be skipped.

    Raises what the broker calls raise: a queue whose start is not known is not started.
    """
    if stored is not None and stored.offset >= 0:
        return stored
    match where:
        case ConsumeFromWhere.LAST_OFFSET:
            return _BEGINNING if is_retry_topic(queue.topic) else await max_offset(client, queue)
        case ConsumeFromWhere.FIRST_OFFSET:
            return _BEGINNING
        case ConsumeFromWhere.TIMESTAMP:
            if is_retry_topic(queue.topic):
                return await max_offset(client, queue)
            return await offset_at(client, queue, timestamp_ms)


# Broadcasting: every member keeps its own progress, in a file of its own.
#
# <directory>/<client id>/<group>/offsets.json        {"offsetTable":{{queue}:offset,…},
#                                                      "epochTable":{{queue}:epoch,…}}
# <directory>/<client id>/<group>/offsets.json.bak    the one before


class LocalOffsets:
    """Progress in a file. Loaded once; a broken file gives way to its .bak, which is reported."""

    def __init__(self, directory: Path, client_id: str, group: str, log: logging.Logger) -> None:
        self.path = directory / client_id.replace("/", "_") / group / "offsets.json"
        self._backup = self.path.with_name("offsets.json.bak")
        self._log = log
        saved = self._load()
        self._offsets = dict(saved.offset_table)
        self._epochs = dict(saved.epoch_table)
        self._is_dirty = False

    def get(self, queue: MessageQueue) -> int:
        """The progress in memory, -1 when there is none."""
        return self._offsets.get(queue, -1)

    def update(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        epoch: int | None = None,
        may_lower: bool = False,
    ) -> None:
        """Progress was made; it goes back only when somebody sought or reset."""
        if offset >= 0 and (may_lower or offset > self._offsets.get(queue, -1)):
            self._offsets[queue] = offset
            self._is_dirty = True
            if epoch is None:
                self._epochs.pop(queue, None)
            else:
                self._epochs[queue] = epoch

    async def load(self, queue: MessageQueue, *, only_looks: bool = False) -> Position | None:
        """The stored offset; None when there is none."""
        offset = self._offsets.get(queue)
        return None if offset is None else Position(offset, self._epochs.get(queue))

    async def persist(self, queues: Iterable[MessageQueue], *, raises: bool = False) -> None:
        """Write the file when something changed. What fails is logged, or raised as OSError, and
        tried again the next time; the old file is there then."""
        if not self._is_dirty:
            return
        try:
            self._write()
        except OSError as error:
            if raises:
                raise
            self._log.warning("offsets not written to %s: %s", self.path, error)
        else:
            self._is_dirty = False

    def _write(self) -> None:
        saved = LocalProgress(offset_table=self._offsets, epoch_table=self._epochs)
        replace_path(self.path, saved.to_json(), keeps_backup=True)

    def forget(self, queue: MessageQueue) -> None:
        """Nothing to forget: the file is this member's alone."""

    def _load(self) -> LocalProgress:
        for path in (self.path, self._backup):
            try:
                return LocalProgress.from_json(path.read_bytes())
            except FileNotFoundError:
                continue
            except BodyError as error:
                self._log.warning("%s cannot be read, trying %s: %s", path, self._backup, error)
        return LocalProgress()


class Offsets(Protocol):
    """Where a consumer keeps its progress."""

    def get(self, queue: MessageQueue) -> int:
        """The progress in memory, -1 when there is none."""
        ...

    def update(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        epoch: int | None = None,
        may_lower: bool = False,
    ) -> None:
        """Progress was made; it goes back only when somebody sought or reset. `epoch` is that of
        the log in which the offset was learned, None where that is not known."""
        ...

    async def load(self, queue: MessageQueue, *, only_looks: bool = False) -> Position | None:
        """The stored offset; None when there is none, an error when it cannot be known.

        With `only_looks` the queue does not go on there."""
        ...

    async def persist(self, queues: Iterable[MessageQueue], *, raises: bool = False) -> None:
        """Store what changed; what fails is logged, or raised, and tried again the next time."""
        ...

    def forget(self, queue: MessageQueue) -> None:
        """The queue belongs to somebody else now."""
        ...


class RemoteOffsets:
    """Clustering: the group's progress lives on the broker."""

    def __init__(
        self, client: Client, group: str, log: logging.Logger, *, young_is_0: bool = True
    ) -> None:
        """`young_is_0`: see `committed_offset`."""
        self._young_is_0 = young_is_0
        self._client = client
        self._group = group
        self._log = log
        self._offsets: dict[MessageQueue, int] = {}
        self._epochs: dict[MessageQueue, int | None] = {}
        self._persisted: dict[MessageQueue, int] = {}

    def get(self, queue: MessageQueue) -> int:
        """The progress in memory, -1 when there is none."""
        return self._offsets.get(queue, -1)

    def update(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        epoch: int | None = None,
        may_lower: bool = False,
    ) -> None:
        """Progress was made; it goes back only when somebody sought or reset."""
        if offset >= 0 and (may_lower or offset > self._offsets.get(queue, -1)):
            self._offsets[queue] = offset
            self._epochs[queue] = epoch

    async def load(self, queue: MessageQueue, *, only_looks: bool = False) -> Position | None:
        """The stored offset; None when there is none, an error when it cannot be known."""
        return await committed_offset(
            self._client,
            self._group,
            queue,
            young_is_0=self._young_is_0,
            only_looks=only_looks,
        )

    async def persist(self, queues: Iterable[MessageQueue], *, raises: bool = False) -> None:
        """Store what changed; what fails is logged, or raised, and tried again the next time."""
        for queue in queues:
            offset = self._offsets.get(queue, -1)
            if offset < 0 or self._persisted.get(queue) == offset:
                continue
            try:
                epoch = self._epochs.get(queue)
                await commit_offset(self._client, self._group, queue, offset, epoch)
            except (ClientError, NetError) as error:
                if raises:
                    raise
                self._log.info("offset %d of %s not stored: %s", offset, queue, error)
            else:
                if queue in self._offsets:  # not forgotten meanwhile
                    self._persisted[queue] = offset

    def forget(self, queue: MessageQueue) -> None:
        """The queue belongs to somebody else now."""
        self._offsets.pop(queue, None)
        self._epochs.pop(queue, None)
        self._persisted.pop(queue, None)
