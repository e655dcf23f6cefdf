"""Scorecard row 5: files derived from the log are deleted and rebuilt identically."""

from dataclasses import dataclass, field
from random import Random

from sparrowmq.testing.recording_disk import RecordingDisk
from tests.faults.store_run import StoreRun, open_store, read_all

KINDS = ("consumequeue", "index", "checkpoint", "abort", "sparrowmq", "all")


@dataclass
class RebuildResult:
    """What deleting some files came to."""

    deleted: list[str]
    problems: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        return f"{len(self.deleted)} files deleted: {'; '.join(self.problems) or 'identical'}"


def compared(disk: RecordingDisk) -> dict[str, bytes]:
    """The files that have to come back as they were; our own marks count sequences."""
    return {
        path: data
        for path, data in disk.files().items()
        if path.startswith(("commitlog/", "consumequeue/", "index/"))
    }


def delete_derived(seed: int, kind: str) -> RebuildResult:
    """Stop a store, delete files of a kind (or some of all), start and stop it, and compare."""
    rng = Random(seed)
    disk = RecordingDisk()
    run = StoreRun(disk, rng, sync_flush=False)
    for _ in range(rng.randint(5, 60)):
        run.step()
    run.store.close()
    before = compared(disk)
    deleted = [path for path in disk.files() if _is_chosen(path, kind, rng)]
    for path in deleted:
        disk.unlink(path)
    result = RebuildResult(deleted)
    try:
        store = open_store(disk, run.now_ms + 1)
    except Exception as error:
        result.problems.append(f"start failed: {error!r}")
        return result
    verdict = run.ledger.check(read_all(store))
    if not verdict:
        result.problems.append(str(verdict))
    store.close()
    after = compared(disk)
    for path in sorted({*before, *after}):
        if before.get(path) != after.get(path):
            result.problems.append(f"{path} differs")
    return result


def _is_chosen(path: str, kind: str, rng: Random) -> bool:
    if path.startswith(("commitlog/", "config/", "lock")):
        return False
    if kind == "all":
        return rng.random() < 0.5
    return path.startswith(kind)
