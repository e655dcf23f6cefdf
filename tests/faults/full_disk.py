"""Scorecard row 6: the disk fills up and gets space again, over and over, under a running store.

Three disks: the recording one with a capacity; a small tmpfs in a separate user namespace; and,
where the machine forbids that, an ordinary directory under RLIMIT_FSIZE.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from sparrowmq.disk.disk import Disk
from sparrowmq.disk.real_disk import RealDisk
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.faults.checker import Ledger, MessageId, State, Verdict
from tests.faults.store_run import StoreRun, open_store, read_all

ROOT = Path(__file__).parents[2]
_TMPFS = 'mount -t tmpfs -o size="$1" none "$2" && shift 2 && exec "$@"'
_WAIT_MS = 10_000


@dataclass
class FullResult:
    """What filling and freeing came to."""

    where: str
    cycles: int = 0
    refused: int = 0
    verdict: Verdict = field(default_factory=Verdict)
    problems: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.verdict) and not self.problems and self.refused >= self.cycles > 0

    def __str__(self) -> str:
        return (
            f"{self.where}: {self.cycles} cycles, {self.refused} refused, {self.verdict};"
            f" {'; '.join(self.problems) or 'writable again each time'}"
        )


class CarelessLedger(Ledger):
    """The planted bug: a refused message counts as acknowledged."""

    def fail(self, message: MessageId) -> None:
        """Acknowledge it."""
        self.ok(message)


def fill_and_free(
    disk: Disk,
    where: str,
    free: Callable[[], None],
    take: Callable[[], None],
    *,
    cycles: int,
    seed: int,
    ledger: Ledger | None = None,
) -> FullResult:
    """Fill the disk, read, make room, write; `cycles` times; then stop, start and look."""
    result = FullResult(where)
    run = StoreRun(disk, Random(seed), sync_flush=seed % 2 == 0, ledger=ledger or Ledger())
    for _ in range(cycles):
        take()
        if not _fill(run):
            result.problems.append("the disk never became full")
            break
        verdict = run.ledger.check(read_all(run.store))
        if not verdict:
            result.problems.append(f"while full: {verdict}")
            break
        free()
        if not _is_writable_again(run):
            result.problems.append("not writable 10 s after there was room again")
            break
        result.cycles += 1
    result.refused = run.ledger.count(State.FAIL)
    run.flush()
    run.store.close()
    again = open_store(disk, run.now_ms + 1)
    result.verdict = run.ledger.check(read_all(again))
    again.close()
    return result


def _fill(run: StoreRun) -> bool:
    for _ in range(200_000):
        before = run.store.max_log_offset
        run.step()
        if run.store.max_log_offset == before:
            return True
    return False


def _is_writable_again(run: StoreRun) -> bool:
    until = run.now_ms + _WAIT_MS
    before = run.store.max_log_offset
    while run.now_ms < until:
        run.step()
        if run.store.max_log_offset > before:
            return True
    return False


def on_recording_disk(cycles: int, seed: int, ledger: Ledger | None = None) -> FullResult:
    """Room comes and goes by the disk's capacity."""
    disk = RecordingDisk(capacity_bytes=150_000)

    def free() -> None:
        assert disk.capacity_bytes is not None
        disk.capacity_bytes += 60_000

    return fill_and_free(
        disk, "recording disk", free, lambda: None, cycles=cycles, seed=seed, ledger=ledger
    )


def on_tmpfs(directory: Path, cycles: int, seed: int, size: str = "16m") -> FullResult | None:
    """In a separate file system; None if the machine does not allow one."""
    command = ["unshare", "-Urm", "sh", "-c", _TMPFS, "sh", size, str(directory)]
    try:
        allowed = subprocess.run([*command, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        return None
    if allowed.returncode:
        return None
    return _in_child(command, "tmpfs", directory, cycles, seed)


def under_size_limit(directory: Path, cycles: int, seed: int) -> FullResult:
    """In a directory, with RLIMIT_FSIZE as the end of the disk."""
    return _in_child([], "limit", directory, cycles, seed)


def _in_child(prefix: list[str], kind: str, directory: Path, cycles: int, seed: int) -> FullResult:
    command = [sys.executable, "-m", "tests.faults.full_disk", kind, str(directory)]
    done = subprocess.run(
        [*prefix, *command, str(cycles), str(seed)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    if done.returncode:
        return FullResult(kind, problems=[f"exit {done.returncode}: {done.stderr[-500:]}"])
    found = json.loads(done.stdout)
    found["verdict"] = Verdict(**found["verdict"])
    return FullResult(**found)


def _main(kind: str, directory: Path, cycles: int, seed: int) -> FullResult:
    if kind == "limit":
        disk = RealDisk(directory)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

        def limit(size: int) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

        return fill_and_free(
            disk, kind, lambda: limit(hard), lambda: limit(6000), cycles=cycles, seed=seed
        )
    ballast = directory / "ballast"
    (directory / "store").mkdir()
    room = RealDisk(directory).usage().free_bytes
    kept = (cycles + 4) * 300_000
    ballast.write_bytes(b"x" * max(room - kept, 0))
    # Behind what is left now there is room for all the cycles, bit by bit.
    with ballast.open("ab") as file:
        file.write(b"x" * (kept - 400_000))

    def free() -> None:
        with ballast.open("r+b") as file:
            file.truncate(ballast.stat().st_size - 300_000)

    return fill_and_free(
        RealDisk(directory / "store"), kind, free, lambda: None, cycles=cycles, seed=seed
    )


if __name__ == "__main__":
    outcome = _main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    flat = {**vars(outcome), "verdict": vars(outcome.verdict)}
    print(json.dumps(flat, default=str))
