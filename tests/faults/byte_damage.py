"""Scorecard row 4: each byte of a small store is flipped once, each file cut at each byte."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from sparrowmq.store.errors import StoreCorrupted
from sparrowmq.store.layout import log_path
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.faults.checker import MessageId, Verdict
from tests.faults.store_run import CONFIG, StoreRun, open_store, read_all

_SKIPPED = ("config/", "lock", "abort")
"""A flipped digit in a table is valid JSON; tables have their own tests."""


@dataclass
class SmallStore:
    """A stopped store and where its messages lie."""

    disk: RecordingDisk
    run: StoreRun
    spans: list[tuple[int, int, MessageId]]

    @property
    def size(self) -> int:
        """Bytes of the files that get damaged."""
        return sum(len(data) for _, data in self.files())

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Path and contents of the files that get damaged."""
        for path, data in self.disk.files().items():
            if not path.startswith(_SKIPPED):
                yield path, data


@dataclass
class DamageResult:
    """What damaging one place came to."""

    place: str
    refusal: str = ""
    verdict: Verdict = field(default_factory=Verdict)
    problems: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        return f"{self.place}: {'; '.join(self.problems)}"


def small_store(seed: int, log_bytes: int = 40_000) -> SmallStore:
    """About 64 KiB of log, queues, index and marks, stopped properly."""
    disk = RecordingDisk()
    run = StoreRun(disk, Random(seed), sync_flush=False)
    while run.store.max_log_offset < log_bytes:
        run.step()
    run.store.close()
    spans = [(each.log_offset, each.end, each.message) for each in run.appended]
    return SmallStore(disk, run, spans)


def flip(store: SmallStore, path: str, at: int, mask: int) -> DamageResult:
    """Flip bits of one byte, start, and judge what is served."""
    data = store.disk.files()[path]
    damaged = data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]
    return _judge(store, f"{path} byte {at} ^ {mask:#04x}", path, damaged, at, at + 1)


def cut(store: SmallStore, path: str, at: int) -> DamageResult:
    """Cut a file, start, and judge what is served."""
    data = store.disk.files()[path]
    return _judge(store, f"{path} cut at {at}", path, data[:at], at, len(data))


def _judge(
    store: SmallStore, place: str, path: str, data: bytes, start: int, end: int
) -> DamageResult:
    disk = store.disk.killed()
    disk.poke(path, data)
    result = DamageResult(place)
    try:
        opened = open_store(disk, store.run.now_ms + 1)
        found = list(read_all(opened))
    except StoreCorrupted as error:
        result.refusal = str(error)
        if not error.path:
            result.problems.append(f"a refusal without a place: {error}")
        return result
    except Exception as error:
        result.problems.append(f"start failed: {error!r}")
        return result
    verdict = result.verdict = store.run.ledger.check(found)
    hit = _messages_at(store, path, start, end)
    lost = [message for message in verdict.lost if message not in hit]
    if lost:
        result.problems.append(f"{len(lost)} undamaged messages lost: {lost[:3]}")
    for kind in ("phantom", "damaged", "twice", "out of order", "refused but read"):
        if kind in verdict.problems():
            result.problems.append(f"{kind}: {verdict.problems()[kind][:3]}")
    return result


def _messages_at(store: SmallStore, path: str, start: int, end: int) -> set[MessageId]:
    hit = set()
    for log_start, log_end, message in store.spans:
        file_start = log_start - log_start % CONFIG.log_file_size
        begins_before, ends_behind = log_start < file_start + end, log_end > file_start + start
        if path == log_path(file_start) and begins_before and ends_behind:
            hit.add(message)
    return hit
