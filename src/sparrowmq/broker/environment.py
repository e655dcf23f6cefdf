"""What a broker gets from its process: clocks, randomness, files, threads and a log.

`cli` creates the real one, `testing` a simulated one; the parts of a broker are opened with it.
"""

import logging
import random
from dataclasses import dataclass

from sparrowmq.clock import Clock, Zone, utc
from sparrowmq.disk.disk import Disk
from sparrowmq.disk.syncer import Syncer
from sparrowmq.net.workers import Workers
from sparrowmq.protocol.ids import UniqueIds
from sparrowmq.store.messages import Damage, Report, StartProgress

_PROGRESS_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Everything outside itself that a broker uses, except the network."""

    disk: Disk
    clock: Clock
    """The time of day: for timestamps in the store; may be set while the broker runs."""
    monotonic: Clock
    """Measures every interval, unaffected when `clock` is set."""
    zone: Zone = utc
    """The host's time zone."""
    cpu: Clock
    """The CPU time that this process has used."""
    boot: str
    """Names the moment that `monotonic` counts from; empty if unknown."""
    rng: random.Random
    workers: Workers
    syncer: Syncer
    pid: int
    log: logging.Logger

    def unique_ids(self, store_host: bytes) -> UniqueIds:
        """Creates ids that no other process creates, not even one with the same address and pid."""
        ip = store_host[:-4]  # the port follows
        return UniqueIds(self.clock, ip=ip, pid=self.pid, instance=self.rng.getrandbits(32))

    def reporting_start(self) -> Report:
        """`report`, plus progress every few seconds: most starts finish before the first."""
        logged_ms = self.monotonic()

        def report(finding: Damage | StartProgress) -> None:
            nonlocal logged_ms
            if isinstance(finding, StartProgress):
                if self.monotonic() - logged_ms < _PROGRESS_MS:
                    return
                logged_ms = self.monotonic()
            self.report(finding)

        return report

    def report(self, finding: object) -> None:
        """Log what opening the files found: damage as a warning, the rest as information."""
        level = logging.WARNING if isinstance(finding, Damage) else logging.INFO
        self.log.log(level, "store: %s", finding)
