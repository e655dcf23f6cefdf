"""The scorecard: one function a row, small (`./dev test --slow`) or as large as the row demands."""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from sparrowmq.testing.recording_disk import RecordingDisk
from tests.faults import crash_points
from tests.faults.byte_damage import DamageResult, cut, flip, small_store
from tests.faults.derived_files import KINDS as DERIVED_KINDS
from tests.faults.derived_files import delete_derived
from tests.faults.full_disk import FullResult, on_recording_disk, on_tmpfs, under_size_limit
from tests.faults.hostile_input import in_process, over_tcp
from tests.faults.io_errors import KINDS as ERROR_KINDS
from tests.faults.io_errors import fail_disk
from tests.faults.kills import kill_broker
from tests.faults.overload import OVERLOADS, overload_broker
from tests.faults.power_cuts import CutResult, cut_power
from tests.faults.process_faults import die_in_calls, fail_syncs
from tests.faults.rebuild_speed import rebuild_speed
from tests.faults.resource_abuse import ABUSES, abuse_broker
from tests.faults.scorecard_clients import (
    churn,
    clock_steps,
    delivery_kills,
    nameserver_outage,
    order_under_churn,
)
from tests.faults.scorecard_everything import everything
from tests.faults.scorecard_replication import replication
from tests.faults.scored import Row, Scored
from tests.faults.spark_jobs import spark_jobs
from tests.faults.stop_time import StopResult, stop_after_failed_sync
from tests.faults.watched_loops import too_long, watched

KEPT = Path("build") / "faults"
_WORKERS = 2
_START_S = 2 + 6
"""2 s, and 1 s for each of the 600 MB that these stores stay below."""
_STOPPED_S = 1.0
_WATCHED_FRAMES = 200_000

Work = TypeVar("Work")
Result = TypeVar("Result")


def keep(disk: RecordingDisk, name: str) -> Path:
    """Write a disk's files to a directory for inspection."""
    directory = KEPT / name
    for path, data in disk.files().items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return directory


def kills(seed: int, small: bool) -> Scored:
    """Row 1."""
    scored = Scored(1, "kill -9 under load")
    senders, count, each = (16, 20, 1800) if small else (64, 100, 5200)
    results = [
        kill_broker(
            seed,
            flush,
            kills=count,
            senders=senders,
            acknowledged_each=each,
            keep_in=KEPT / f"row1-{flush}-{seed}",
        )
        for flush in ("sync", "async")
    ]
    slowest = max(result.slowest_start_s for result in results)
    if not small and crash_points.is_available():
        results.append(die_in_calls(seed, 40))
    scored.failures = [str(result) for result in results if not result]
    total = sum(result.verdict.ok for result in results)
    if total < (100_000 if small else 1_000_000) and not scored.failures:
        scored.failures.append(f"{total} acknowledged are too few to prove anything")
    if not small and slowest > _START_S:
        scored.failures.append(f"a start took {slowest:.1f} s, {_START_S} s allowed")
    done = sum(result.kills for result in results)
    scored.counts = (
        f"{done} kills, {senders} senders, {total} acknowledged, start ≤ {slowest:.1f} s"
    )
    return scored


def power_loss(seed: int, small: bool) -> Scored:
    """Row 2."""
    runs = 12 if small else 520
    scored = Scored(2, "power loss")
    totals = []
    for sync_flush in (True, False):
        cuts = acknowledged = 0
        for result in _in_parallel(partial(cut_power, sync_flush=sync_flush), seed, runs, small):
            cuts += result.cuts
            acknowledged += result.verdict.ok
            if not result:
                scored.failures.append(_kept_cut(result, sync_flush))
        mode = "sync" if sync_flush else "async"
        totals.append(f"{mode}: {cuts} cuts, {acknowledged} acknowledged")
    scored.counts = "; ".join(totals)
    return scored


def _kept_cut(result: CutResult, sync_flush: bool) -> str:
    mode = "sync" if sync_flush else "async"
    where = keep(result.disk, f"row2-{mode}-{result.seed}") if result.disk is not None else ""
    return f"{mode}, {result} (kept in {where})"


def io_errors(seed: int, small: bool) -> Scored:
    """Row 3."""
    scored = Scored(3, "EIO, read-only disk")
    met = acknowledged = 0
    for kind in ERROR_KINDS:
        for sync_flush in (True, False):
            run = partial(fail_disk, kind=kind, sync_flush=sync_flush)
            for result in _in_parallel(run, seed, 8 if small else 200, small):
                met += result.was_met
                acknowledged += result.verdict.ok
                if not result:
                    scored.failures.append(str(result))
    scored.counts = f"{met} errors met, {acknowledged} acknowledged"
    stopped: list[StopResult] = []
    for sync_flush in (True, False):
        run_broker = partial(stop_after_failed_sync, sync_flush=sync_flush)
        stopped += _in_parallel(run_broker, seed, 4 if small else 100, small)
    scored.simulated = len(stopped)
    scored.failures += [str(result) for result in stopped if not result]
    slowest = max(result.seconds for result in stopped)
    scored.counts += f"; {len(stopped)} brokers gone ≤ {slowest:.2f} s of virtual time later"
    if not small and crash_points.is_available():
        ended = [fail_syncs(number) for number in range(seed, seed + 10)]
        scored.failures += [str(result) for result in ended if not result]
        slowest = max(result.seconds_to_stop for result in ended)
        scored.counts += f", {len(ended)} processes ≤ {slowest:.2f} s"
        if slowest > _STOPPED_S:
            scored.failures.append(f"a process lived on for {slowest:.2f} s, 1 s allowed")
    return scored


def byte_damage(seed: int, small: bool) -> Scored:
    """Row 4."""
    scored = Scored(4, "every byte flipped, every cut")
    store = small_store(seed)
    every = 149 if small else 1
    places = [
        (path, at) for path, data in store.files() for at in range(seed % every, len(data), every)
    ]
    chunks = [places[first : first + 500] for first in range(0, len(places), 500)]
    refused = 0
    for results in _mapped(partial(_damage_all, seed), chunks, small):
        for result in results:
            refused += bool(result.refusal)
            if not result:
                scored.failures.append(f"seed {seed}, {result}")
    scored.counts = f"{2 * len(places)} places in {store.size} bytes, {refused} starts refused"
    return scored


def _damage_all(seed: int, places: list[tuple[str, int]]) -> list[DamageResult]:
    store = small_store(seed)
    found = []
    for path, at in places:
        found += [flip(store, path, at, 1 << (at + seed) % 8), cut(store, path, at)]
    return [result for result in found if not result or result.refusal]


def derived_files(seed: int, small: bool) -> Scored:
    """Row 5."""
    scored = Scored(5, "derived files deleted")
    runs = 0
    for kind in DERIVED_KINDS:
        for result in _in_parallel(
            partial(delete_derived, kind=kind), seed, 5 if small else 60, small
        ):
            runs += 1
            if not result:
                scored.failures.append(f"{kind}: {result}")
    scored.counts = f"{runs} stores rebuilt identical"
    if not small:
        speed = rebuild_speed(400_000)
        scored.counts += f", {speed:,.0f} records/s"
        if speed < 50_000:
            scored.failures.append(f"{speed:,.0f} records/s, 50,000 demanded")
    return scored


def full_disk(seed: int, small: bool) -> Scored:
    """Row 6."""
    scored = Scored(6, "disk full")
    cycles = 4 if small else 20
    results: list[FullResult] = []
    for number in range(1 if small else 5):
        results.append(on_recording_disk(cycles, seed + number))
        with tempfile.TemporaryDirectory() as directory:
            found = on_tmpfs(Path(directory), cycles, seed + number)
        if found is None:
            with tempfile.TemporaryDirectory() as directory:
                found = under_size_limit(Path(directory), cycles, seed + number)
        results.append(found)
    scored.failures = [f"seed {seed}, {result}" for result in results if not result]
    total = sum(result.cycles for result in results)
    kinds = " and ".join(sorted({result.where for result in results}))
    acknowledged = sum(result.verdict.ok for result in results)
    scored.counts = f"{total} cycles on {kinds}, {acknowledged} acknowledged"
    return scored


def resource_abuse(seed: int, small: bool, only: str = "") -> Scored:
    """Row 7: limits on what peers may take, and honest clients during overloads."""
    scored = Scored(7, "resource abuse")
    abuses = [name for name, case in ABUSES.items() if only in name and (case.small or not small)]
    overloads = [name for name in OVERLOADS if only in name]
    results = [abuse_broker(name, small=small) for name in abuses]
    again = [] if small else [abuse_broker(name, small=False, is_watched=True) for name in abuses]
    scored.failures = [str(result) for result in (*results, *again) if not result]
    counts = []
    if results:
        most = max(result.grown_bytes for result in results)
        counts.append(f"{len(results)} kinds of abuse, memory ≤ +{most / 1e6:.0f} MB")
    if again:
        longest = max(again, key=lambda result: result.stall_ms)
        counts.append(
            f"the loop stood still for {longest.stall_ms:.0f} ms at most, with {longest.name}"
            f" in {longest.stalled_in}"
        )
    for name in overloads:
        overloaded = overload_broker(name, small=small)
        counts.append(str(overloaded))
        scored.failures += [] if overloaded else [str(overloaded)]
    counts += [] if small else [_watched_overload(name, scored) for name in overloads]
    scored.counts = "\n    ".join(counts)
    return scored


def _watched_overload(name: str, scored: Scored) -> str:
    with watched() as loops:
        result = overload_broker(name, small=False, is_watched=True)
    problems = (*result.problems, *too_long(loops.stalls))
    scored.failures += [f"{name}, watched: {problem}" for problem in problems]
    return f"{name}, watched: {loops}"


def hostile_input(seed: int, small: bool) -> Scored:
    """Row 13."""
    scored = Scored(13, "hostile input")
    decoded = refused = 0
    count, each = (4, 5_000) if small else (500, 20_000)
    for result in _in_parallel(partial(in_process, count=each), seed * 1000, count, small):
        decoded += result.frames
        refused += result.refused
        scored.failures += result.problems
    sent = over_tcp(seed, 6_000 if small else 1_000_000)
    scored.failures += [f"seed {seed}, {problem}" for problem in sent.problems]
    scored.counts = (
        f"{decoded} frames in process ({refused} refused), {sent.frames} over TCP,"
        f" memory {sent.grown_bytes / 1e6:+.1f} MB"
    )
    if not small:
        with watched() as loops:
            again = over_tcp(seed, _WATCHED_FRAMES)
        problems = (*again.problems, *too_long(loops.stalls))
        scored.failures += [f"seed {seed}, watched: {problem}" for problem in problems]
        scored.counts += f"; {again.frames} over TCP, watched: {loops}"
    return scored


def _in_parallel(
    run: Callable[[int], Result], seed: int, count: int, small: bool
) -> Iterator[Result]:
    return _mapped(run, range(seed, seed + count), small)


def _mapped(run: Callable[[Work], Result], work: Iterable[Work], small: bool) -> Iterator[Result]:
    if small:
        yield from map(run, work)
        return
    with ProcessPoolExecutor(_WORKERS) as pool:
        yield from pool.map(run, work, chunksize=4)


ROWS: dict[int, Row] = {
    1: kills,
    2: power_loss,
    3: io_errors,
    4: byte_damage,
    5: derived_files,
    6: full_disk,
    7: resource_abuse,
    8: replication,
    9: churn,
    10: delivery_kills,
    11: order_under_churn,
    12: nameserver_outage,
    13: hostile_input,
    16: spark_jobs,
    17: clock_steps,
    20: everything,
}
