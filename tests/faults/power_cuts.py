"""Scorecard row 2: the power fails at any call, and any part of the unsynced data is lost."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from sparrowmq.testing.recorded_calls import PowerCut
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.faults.checker import Verdict
from tests.faults.store_run import StoreRun, ids_in, read_all

MakeDisk = Callable[[], RecordingDisk]


@dataclass
class CutResult:
    """What a series of power cuts on one store came to."""

    seed: int
    cuts: int = 0
    verdict: Verdict = field(default_factory=Verdict)
    problems: list[str] = field(default_factory=list)
    disk: RecordingDisk | None = None
    """As it was found after the last cut, before the store was opened."""

    def __bool__(self) -> bool:
        return bool(self.verdict) and not self.problems

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.verdict}; {'; '.join(self.problems) or 'all starts fine'}"


def cut_power(
    seed: int,
    *,
    sync_flush: bool,
    cuts: int = 4,
    make_disk: MakeDisk = RecordingDisk,
    acknowledge_early: bool = False,
) -> CutResult:
    """Run a store, cut the power, start again and look, `cuts` times in a row."""
    result = CutResult(seed)
    rng = Random(seed)
    disk = make_disk()
    run = StoreRun(disk, rng, sync_flush, acknowledge_early)
    for _ in range(cuts):
        _run_until_cut(run, disk, rng)
        try:
            disk = _after(disk, rng)
            result.disk = disk.killed()
            result.cuts += 1
            again = run.reopened(disk)
        except Exception as error:
            result.problems.append(f"start failed: {error!r}")
            return result
        found = list(read_all(again.store))
        if not sync_flush:
            result.problems += run.forget_lost_suffix(ids_in(found))
        if again.load_table() < run.table_saved:
            result.problems.append(f"table {again.load_table()}, {run.table_saved} was saved")
        result.verdict = again.ledger.check(found)
        if not result:
            return result
        result.disk = None
        run = again
    return result


def _run_until_cut(run: StoreRun, disk: RecordingDisk, rng: Random) -> None:
    try:
        for _ in range(rng.randint(0, 40)):
            run.step()
        if rng.random() < 0.1:
            run.store.close()
            return
        disk.cut_at(rng.randint(1, 60))
        while True:
            run.step()
    except PowerCut:
        return


def _after(disk: RecordingDisk, rng: Random) -> RecordingDisk:
    after = disk.crashed(rng)
    if rng.random() < 0.15:
        # The power fails again while the store is being opened.
        again = disk.crashed(rng)
        again.cut_at(rng.randint(1, 30))
        try:
            StoreRun(again, Random(0), sync_flush=True)
        except PowerCut:
            after = again.crashed(rng)
    return after


class LyingDisk(RecordingDisk):
    """The planted bug: a flush that is skipped."""

    def sync(self, path: str) -> None:
        """Claim that it is durable."""
        self.call("sync", path)
