"""Row 20 of the scorecard: everything at once."""

from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from tests.faults.campaign import Judged
from tests.faults.campaign_faults import FAULTS
from tests.faults.campaign_processes import IMPOSSIBLE, campaign_in_processes
from tests.faults.campaign_sim import campaign_in_simulation
from tests.faults.scored import Scored

KEPT = Path("build") / "faults"
_WORKERS = 2
_SMALL_FAULTS = 12
_RUNS, _FAULTS_EACH = 10, 40
_PROCESS_FAULTS = 50
_STALL_MS = 50.0


def everything(seed: int, small: bool, kinds: Iterable[str] = tuple(FAULTS)) -> Scored:
    """Row 20; `kinds` are the faults that may happen."""
    scored = Scored(20, "everything at once")
    chosen = tuple(kinds)
    runs: dict[str, list[Judged]] = {}
    for sync_flush in (True, False):
        flush = "sync" if sync_flush else "async"
        runs[f"simulated, {flush}"] = _simulated(seed, small, sync_flush, chosen)
        if not small and (possible := [kind for kind in chosen if kind not in IMPOSSIBLE]):
            kept = KEPT / f"row20-{flush}-{seed}"
            judged = campaign_in_processes(
                seed, _PROCESS_FAULTS, sync_flush=sync_flush, kinds=possible, keep_in=kept
            )
            runs[f"processes, {flush}"] = [judged]
    for name, results in runs.items():
        scored.failures += [f"{name}, {result}" for result in results if not result]
    scored.counts = "; ".join(f"{name}: {_counts(results)}" for name, results in runs.items())
    return scored


def _simulated(seed: int, small: bool, sync_flush: bool, kinds: tuple[str, ...]) -> list[Judged]:
    if small:
        return [campaign_in_simulation(seed, _SMALL_FAULTS, sync_flush=sync_flush, kinds=kinds)]
    kept = KEPT / f"row20-simulated-{'sync' if sync_flush else 'async'}"
    run = partial(campaign_in_simulation, sync_flush=sync_flush, kinds=kinds, keep_in=kept)
    with ProcessPoolExecutor(_WORKERS) as pool:
        return [*pool.map(run, range(seed, seed + _RUNS), [_FAULTS_EACH] * _RUNS)]


def _counts(results: list[Judged]) -> str:
    def total(name: str) -> int:
        return sum(getattr(result, name) for result in results)

    text = (
        f"{total('faults')} faults, {total('ok')} acknowledged, {total('lost')} lost,"
        f" {total('skipped')} skipped, {total('out_of_order')} out of order,"
        f" {total('repeated')} repeated, {total('unsynced')} unsynced"
    )
    stalls = [stall for result in results for stall in result.story.stalls]
    if stalls:
        longest_ms, where = max(stalls)
        over = sum(own_ms > _STALL_MS for own_ms, _ in stalls)
        text += f", {over} stalls over {_STALL_MS:g} ms, the longest {longest_ms:.0f} ms in {where}"
    return text
