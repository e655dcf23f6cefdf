"""Scorecard row 3: a sync or write fails, or the disk turns read-only, at any moment."""

import errno
from dataclasses import dataclass, field
from random import Random

from sparrowmq.disk.syncer import sync_plan
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.faults.checker import State, Verdict
from tests.faults.store_run import StoreRun, ids_in, read_all

KINDS = ("sync", "write", "read-only")
_STEPS_AFTER = 15


@dataclass
class ErrorResult:
    """What one failing disk came to."""

    seed: int
    kind: str
    was_met: bool = False
    """The planted error was met at all."""
    verdict: Verdict = field(default_factory=Verdict)
    problems: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.verdict) and not self.problems

    def __str__(self) -> str:
        return f"seed {self.seed}, {self.kind}: {self.verdict}; {'; '.join(self.problems)}"


class RetryingRun(StoreRun):
    """The planted bug: a failed sync is passed over, as if trying again could tell anything."""

    def flush(self) -> None:
        """Flush and acknowledge, whatever the disk says."""
        plan = self.store.begin_flush()
        if plan is None:
            return
        try:
            sync_plan(self.disk, plan)
        except OSError:
            self.is_stopped = True
        self.store.finish_flush(plan)
        for promise in self.waiting:
            self.ledger.ok(promise.message)
        self.waiting.clear()


def fail_disk(
    seed: int, kind: str, *, sync_flush: bool, run_type: type[StoreRun] = StoreRun
) -> ErrorResult:
    """Run a store until its disk fails, keep trying, restart on the healed disk and check."""
    rng = Random(seed)
    disk = RecordingDisk()
    result = ErrorResult(seed, kind)
    run = run_type(disk, rng, sync_flush)
    for _ in range(rng.randint(0, 15)):
        run.step()
    _plant(disk, kind, rng)
    for _ in range(60):
        if run.is_stopped:
            break
        run.step()
    result.was_met = run.is_stopped
    acknowledged = run.ledger.count(State.OK)
    stored = run.store.max_log_offset
    for _ in range(_STEPS_AFTER):
        run.step()
    # After a failed write, what was written before it may still be synced and acknowledged.
    if kind == "sync" and result.was_met and run.ledger.count(State.OK) > acknowledged:
        result.problems.append("acknowledged after a sync had failed")
    if result.was_met and run.store.max_log_offset > stored:
        result.problems.append("stored after the disk had failed")
    # What a failed sync did not write may be gone although the machine stayed up.
    disk.heal()
    after = disk.crashed(rng) if sync_flush else disk.killed()
    try:
        again = run.reopened(after)
    except Exception as error:
        result.problems.append(f"start failed: {error!r}")
        return result
    found = list(read_all(again.store))
    if not sync_flush:
        result.problems += run.forget_lost_suffix(ids_in(found))
    result.verdict = again.ledger.check(found)
    return result


def _plant(disk: RecordingDisk, kind: str, rng: Random) -> None:
    if kind == "read-only":
        disk.is_read_only = True
    else:
        error = rng.choice((errno.EIO, errno.EIO, errno.EROFS))
        times = rng.choice((1, None))
        disk.fail(kind, error, first=rng.randint(1, 20), times=times)
