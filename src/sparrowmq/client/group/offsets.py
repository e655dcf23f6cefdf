"""Progress of a consumer: kept in memory, stored at intervals at the broker or in a file.

Clustering groups share their progress, so it lives at the broker (`RemoteOffsets`). Each member of
a broadcasting group has its own (`LocalOffsets`). `StartOffsets` decides where a queue without
stored progress begins.
"""

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
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.errors import BrokerRefused, ClientError
from sparrowmq.client.group.member_settings import MemberSettings
from sparrowmq.client.group.offsets_folder import OffsetsFolder, claim_folder
from sparrowmq.disk.atomic_file import replace_path
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.heartbeat import ConsumeFromWhere
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import is_retry_topic
from sparrowmq.protocol.offsets_body import LocalProgress


class Offsets(Protocol):
    """Where a consumer keeps its progress."""

    def get(self, queue: MessageQueue) -> int:
        """The progress in memory, -1 when there is none."""
        ...

    def update(self, queue: MessageQueue, position: Position, *, may_lower: bool = False) -> None:
        """Progress was made; it goes back only after a seek or a reset."""
        ...

    async def load(self, queue: MessageQueue, *, only_looks: bool = False) -> Position | None:
        """The stored offset, or None. Raises if it cannot be determined.

        With `only_looks` the caller only compares: the queue does not continue there."""
        ...

    async def persist(self, queues: Iterable[MessageQueue], *, raises: bool = False) -> None:
        """Store what changed; what fails is logged, or raised, and tried again the next time."""
        ...

    def unstored(self, queues: Iterable[MessageQueue]) -> int:
        """How many of these queues have progress that could not be stored."""
        ...

    def forget(self, queue: MessageQueue) -> None:
        """The queue was given up: its next owner's progress counts."""
        ...

    def close(self) -> None:
        """The member has left; nothing is stored any more."""
        ...


def open_offsets(client: ClientCore, settings: MemberSettings) -> Offsets:
    """Where a consumer with these settings keeps its progress."""
    if settings.is_broadcasting:
        home = settings.offsets_dir or Path.home() / ".sparrowmq" / "offsets"
        return LocalOffsets(claim_folder(home, client, settings.group), client.log)
    # A consumer that names a time means it, even if the queue is young.
    has_time = settings.from_where is ConsumeFromWhere.TIMESTAMP
    return RemoteOffsets(client, settings.group, client.log, young_is_0=not has_time)


class RemoteOffsets:
    """Clustering: the group's progress lives on the broker."""

    def __init__(
        self, client: ClientCore, group: str, log: logging.Logger, *, young_is_0: bool = True
    ) -> None:
        """`young_is_0`: see `committed_offset`."""
        self._young_is_0 = young_is_0
        self._client = client
        self._group = group
        self._log = log
        self._positions: dict[MessageQueue, Position] = {}
        self._persisted: dict[MessageQueue, tuple[int, str, str]] = {}
        """Offset, the address of the broker that has it, and our session there: a broker that dies
        may lose what it received in the last second. So while a master is away, its last progress
        is stored at the slave too, and when it is back, the slave's at the master."""

    def get(self, queue: MessageQueue) -> int:
        """The progress in memory, -1 when there is none."""
        position = self._positions.get(queue)
        return -1 if position is None else position.offset

    def update(self, queue: MessageQueue, position: Position, *, may_lower: bool = False) -> None:
        """Progress was made; it goes back only after a seek or a reset."""
        if position.offset >= 0 and (may_lower or position.offset > self.get(queue)):
            self._positions[queue] = position

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
            position = self._positions.get(queue)
            if position is None or self._is_stored(queue, position):
                continue
            try:
                address = await commit_offset(self._client, self._group, queue, position)
            except (ClientError, NetError) as error:
                if raises:
                    raise
                level = logging.INFO if isinstance(error, BrokerRefused) else logging.DEBUG
                text = "offset %d of %s not stored: %s"
                self._log.log(level, text, position.offset, queue, error)
            else:
                if queue in self._positions:  # not forgotten meanwhile
                    session = self._client.sessions.name(address)
                    self._persisted[queue] = position.offset, address, session

    def _is_stored(self, queue: MessageQueue, position: Position) -> bool:
        offset, address, session = self._persisted.get(queue, (-1, "", ""))
        if offset != position.offset:
            return False
        best = self._client.route_table.address(queue.broker_name)
        return best is None or (best == address and session == self._client.sessions.name(best))

    def unstored(self, queues: Iterable[MessageQueue]) -> int:
        """How many of these queues have progress that could not be stored."""
        known = ((queue, self._positions.get(queue)) for queue in queues)
        return sum(at is not None and not self._is_stored(queue, at) for queue, at in known)

    def forget(self, queue: MessageQueue) -> None:
        """The queue was given up: its next owner's progress counts."""
        self._positions.pop(queue, None)
        self._persisted.pop(queue, None)

    def close(self) -> None:
        """Nothing to close: the client does."""


class LocalOffsets:
    """Broadcasting: every member keeps its own progress in its own file. It is loaded once; if the
    file is broken, its .bak is used, which is logged.

    <folder>/offsets.json        {"offsetTable":{{queue}:offset,…},
                                  "epochTable":{{queue}:epoch,…}}
    <folder>/offsets.json.bak    the one before
    """

    def __init__(self, folder: OffsetsFolder, log: logging.Logger) -> None:
        self._folder = folder
        self.path = folder.path / "offsets.json"
        self._backup = self.path.with_name("offsets.json.bak")
        self._log = log
        saved = self._load()
        self._positions = {
            queue: Position(offset, saved.epoch_table.get(queue))
            for queue, offset in saved.offset_table.items()
        }
        self._is_dirty = False

    def get(self, queue: MessageQueue) -> int:
        """The progress in memory, -1 when there is none."""
        position = self._positions.get(queue)
        return -1 if position is None else position.offset

    def update(self, queue: MessageQueue, position: Position, *, may_lower: bool = False) -> None:
        """Progress was made; it goes back only after a seek or a reset."""
        if position.offset >= 0 and (may_lower or position.offset > self.get(queue)):
            self._positions[queue] = position
            self._is_dirty = True

    async def load(self, queue: MessageQueue, *, only_looks: bool = False) -> Position | None:
        """The stored offset; None when there is none."""
        return self._positions.get(queue)

    async def persist(self, queues: Iterable[MessageQueue], *, raises: bool = False) -> None:
        """Write the file if something changed. A failure is logged, or raised as OSError, and the
        write is retried the next time; until then the old file stays."""
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
        replace_path(self.path, self._progress().to_json(), keeps_backup=True)

    def _progress(self) -> LocalProgress:
        positions = self._positions.items()
        return LocalProgress(
            offset_table={queue: position.offset for queue, position in positions},
            epoch_table={queue: at.epoch for queue, at in positions if at.epoch is not None},
        )

    def unstored(self, queues: Iterable[MessageQueue]) -> int:
        """0: a failure to write the file is logged when it happens."""
        return 0

    def forget(self, queue: MessageQueue) -> None:
        """Nothing to forget: no other member uses the file."""

    def close(self) -> None:
        """Let the member's next run have the folder."""
        self._folder.release()

    def _load(self) -> LocalProgress:
        for path in (self.path, self._backup):
            try:
                return LocalProgress.from_json(path.read_bytes())
            except FileNotFoundError:
                continue
            except BodyError as error:
                self._log.warning("%s cannot be read, trying %s: %s", path, self._backup, error)
        return LocalProgress()


HALF_HOUR_MS = 30 * 60 * 1000
_BEGINNING = Position(0, UNKNOWN_EPOCH)
"""The broker corrects it to its minimum; it is good in every epoch."""


class StartOffsets:
    """Where queues begin for a consumer that started at `started_ms`.

    A stored offset wins, even 0. Without one the rule decides. Retry topics are special: what is in
    them was sent back by this group, so LAST_OFFSET does not skip it; TIMESTAMP starts at the end.
    """

    def __init__(self, client: ClientCore, settings: MemberSettings, started_ms: int) -> None:
        self.client = client
        self._settings = settings
        at_ms = settings.from_timestamp_ms
        self._since_ms = started_ms - HALF_HOUR_MS if at_ms is None else at_ms

    async def of(self, queue: MessageQueue, stored: Position | None) -> Position:
        """Where to begin. Raises what the broker calls raise: a queue with an unknown start is not
        started."""
        if stored is not None and stored.offset >= 0:
            return stored
        if self._settings.starts_at_0:
            return _BEGINNING
        start = await self._by_rule(queue)
        if stored is None and start.offset > 0 and self._settings.begins_at_the_end:
            # Apache's brokers report nothing stored while a queue is empty. If its first message
            # arrived before we asked for the end, they now answer 0.
            group = self._settings.group
            again = await committed_offset(self.client, group, queue, young_is_0=True)
            return start if again is None else again
        return start

    async def _by_rule(self, queue: MessageQueue) -> Position:
        is_retry = is_retry_topic(queue.topic)
        match self._settings.from_where:
            case ConsumeFromWhere.LAST_OFFSET:
                return _BEGINNING if is_retry else await max_offset(self.client, queue)
            case ConsumeFromWhere.FIRST_OFFSET:
                return _BEGINNING
            case ConsumeFromWhere.TIMESTAMP if is_retry:
                return await max_offset(self.client, queue)
            case ConsumeFromWhere.TIMESTAMP:
                return await offset_at(self.client, queue, self._since_ms)
