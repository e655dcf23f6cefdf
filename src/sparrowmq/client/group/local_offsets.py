"""Broadcasting: every member keeps its own progress, in a file of its own.

<directory>/<client id>/<group>/offsets.json        {"offsetTable":{{queue}:offset,…},
                                                     "epochTable":{{queue}:epoch,…}}
<directory>/<client id>/<group>/offsets.json.bak    the one before
"""

import logging
import os
from collections.abc import Iterable
from pathlib import Path

from sparrowmq.client.broker_calls import Position
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.offsets_body import LocalProgress


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
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_name("offsets.json.tmp")
        with fresh.open("wb") as file:
            saved = LocalProgress(offset_table=self._offsets, epoch_table=self._epochs)
            file.write(saved.to_json())
            file.flush()
            os.fsync(file.fileno())
        if self.path.exists():
            self.path.replace(self._backup)
        fresh.replace(self.path)

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
