"""This broker's current id: the configured one, or the one from its last change of roles.

A planned change of roles (`role_change.py`) swaps the ids of a master and a slave while both run.
Their command lines and settings stay as they were, so each notes its new id in a file of its data
directory; otherwise the old master's next start would make it a second one. The note is valid as
long as the configured id stays the same: an operator who changes that means it.

The file is outside the directories that `fresh_start` sets aside: a broker that loses its log keeps
its role.
"""

from dataclasses import replace

import msgspec

from sparrowmq.broker.config import MASTER_ID, BrokerConfig
from sparrowmq.disk.atomic_file import AtomicFile
from sparrowmq.disk.disk import Disk

ROLE = "role.json"


class _Noted(msgspec.Struct):
    configured_id: int
    current_id: int
    took_over_at: int | None = None
    id_before: int | None = None


class CurrentRole:
    """The id of one broker, from its file and its configuration."""

    def __init__(self, disk: Disk, configured_id: int) -> None:
        self._file = AtomicFile(disk, ROLE)
        self._configured_id = configured_id
        self.broker_id = configured_id
        self.took_over_at: int | None = None
        """Where the log ended when the last master gave its role to this broker; None once it has
        served. A log that still ends there has every acknowledged message, so no slave needs to be
        asked."""
        self.id_before: int | None = None
        """The id of a slave that took over from no master; None once it serves. If the name servers
        refuse its first registration, there is a master: it gets this id back."""

    @staticmethod
    def load(disk: Disk, configured_id: int) -> "CurrentRole":
        """The contents of the file, if it was written under this configured id. Raises OSError, or
        ValueError for a damaged file."""
        role = CurrentRole(disk, configured_id)
        data = role._file.read()
        if data is not None:
            noted = msgspec.json.decode(data, type=_Noted)
            if noted.configured_id == configured_id:
                role.broker_id, role.took_over_at = noted.current_id, noted.took_over_at
                role.id_before = noted.id_before
        return role

    @property
    def is_changed(self) -> bool:
        """Whether the id differs from the configured one."""
        return self.broker_id != self._configured_id

    def become(
        self, broker_id: int, *, took_over_at: int | None = None, id_before: int | None = None
    ) -> None:
        """Note the id of the next start; durable when this returns. Raises DiskFull or OSError."""
        noted = _Noted(self._configured_id, broker_id, took_over_at, id_before)
        self._file.replace(msgspec.json.encode(noted))
        self.broker_id, self.took_over_at, self.id_before = broker_id, took_over_at, id_before

    def note_first_service(self) -> None:
        """Remove `took_over_at` from the file; durable when this returns. From now on messages are
        accepted, and a power cut may leave a log that ends there again and lacks them. Raises
        DiskFull or OSError."""
        if self.took_over_at is not None:
            noted = _Noted(self._configured_id, self.broker_id)
            self._file.replace(msgspec.json.encode(noted))

    def note_takeover(self) -> None:
        """Remove `id_before`: no name server objected, and messages are accepted from now on.
        Durable when this returns. Raises DiskFull or OSError."""
        if self.id_before is not None:
            self.become(self.broker_id)

    def step_back(self) -> bool:
        """Note the id before a takeover again; False if there is none. Raises DiskFull, OSError."""
        if self.id_before is None:
            return False
        self.become(self.id_before)
        return True

    def applied_to(self, config: BrokerConfig) -> BrokerConfig:
        """The configuration with this id in it."""
        return replace(config, broker_id=self.broker_id) if self.is_changed else config

    @property
    def is_master(self) -> bool:
        """Whether the id is that of a master."""
        return self.broker_id == MASTER_ID
