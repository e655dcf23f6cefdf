"""Row 20 of the scorecard: all faults at once."""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from tests.faults.campaign import Judged
from tests.faults.campaign_faults import FAULTS
from tests.faults.campaign_processes import IMPOSSIBLE, campaign_in_processes
from tests.faults.campaign_sim import IMPOSSIBLE as UNSIMULATED
from tests.faults.campaign_sim import campaign_in_simulation
from tests.faults.campaign_stream import STREAM, why_no_stream
from tests.faults.scored import Scored
from tests.faults.watched_loops import too_long

KEPT = Path("build") / "faults"
_WORKERS = 2
_SMALL_FAULTS = 12
_RUNS, _FAULTS_EACH = 10, 40
_PROCESS_FAULTS = 50


def everything(
    seed: int, small: bool, kinds: Sequence[str] = tuple(FAULTS), only: str = ""
) -> Scored:
    """Row 20, or those of its parts that have `only` in their names; `kinds` are the faults that
    may happen.

    At full size a Spark stream reads along in the processes, unless this machine has no Spark.
    """
    scored = Scored(20, "everything at once")
    simulated = tuple(kind for kind in kinds if kind not in UNSIMULATED)
    no_stream = "" if small else why_no_stream()
    left_out = {*IMPOSSIBLE, "driver"} if no_stream else IMPOSSIBLE
    in_processes = () if small else tuple(kind for kind in kinds if kind not in left_out)
    runs: dict[str, list[Judged]] = {}
    for sync_flush in (True, False):
        flush = "sync" if sync_flush else "async"
        name = f"simulated, {flush}"
        if simulated and only in name:
            runs[name] = _simulated(seed, small, sync_flush, simulated)
            scored.simulated += len(runs[name])
        name = f"processes, {flush}"
        if in_processes and only in name:
            judged = campaign_in_processes(
                seed,
                _PROCESS_FAULTS,
                sync_flush=sync_flush,
                kinds=in_processes,
                with_stream=not no_stream,
                keep_in=KEPT / f"row20-{flush}-{seed}",
            )
            runs[name] = [judged]
    if not runs:
        scored.failures.append(
            f"nothing was tried: {', '.join(kinds)} cannot happen"
            f" in {only or 'any part'}; parts are simulated and, at full size, processes"
        )
    for name, results in runs.items():
        scored.failures += [f"{name}, {result}" for result in results if not result]
        scored.failures += [f"{name}, {stalls}" for stalls in too_long(_stalls(results))]
    counts = [f"{name}: {_counts(results)}" for name, results in runs.items()]
    scored.counts = "; ".join([*counts, *([f"no Spark stream: {no_stream}"] if no_stream else [])])
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
    if streamed := sum(call.group == STREAM for result in results for call in result.story.calls):
        text += f", {streamed} read by the stream"
    return ", ".join([text, *too_long(_stalls(results))])


def _stalls(results: list[Judged]) -> list[tuple[float, str]]:
    return [stall for result in results for stall in result.story.stalls]
