"""Progress of a consumer: kept in memory, persisted now and then where it belongs."""

import logging
from collections.abc import Iterable
from typing import Protocol

from sparrowmq.client.broker_calls import Position, commit_offset, committed_offset
from sparrowmq.client.client import Client
from sparrowmq.client.errors import ClientError
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.message import MessageQueue


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
