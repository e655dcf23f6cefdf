"""Row 20 of the scorecard: everything at once."""

from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.faults.campaign import Judged
from tests.faults.campaign_faults import FAULTS
from tests.faults.campaign_sim import campaign_in_simulation
from tests.faults.scored import Scored

UNMENDED = frozenset({"power", "topic", "clock-back"})
"""Kinds of faults under which messages are known to be skipped or late; chosen by name only."""
KINDS = tuple(kind for kind in FAULTS if kind not in UNMENDED)
_WORKERS = 2
_SMALL_FAULTS = 12
_FAULTS_EACH, _RUNS = 40, 20


def everything(seed: int, small: bool, kinds: Iterable[str] = KINDS) -> Scored:
    """Row 20; `kinds` are the faults that may happen."""
    scored = Scored(20, "everything at once")
    chosen = tuple(kinds)
    texts = []
    for sync_flush in (True, False):
        results = _simulated(seed, small, sync_flush, chosen)
        scored.failures += [f"simulated, {result}" for result in results if not result]
        texts.append(f"simulated, {'sync' if sync_flush else 'async'}: {_counts(results)}")
    scored.counts = "; ".join(texts)
    return scored


def _simulated(seed: int, small: bool, sync_flush: bool, kinds: tuple[str, ...]) -> list[Judged]:
    if small:
        return [campaign_in_simulation(seed, _SMALL_FAULTS, sync_flush=sync_flush, kinds=kinds)]
    run = partial(campaign_in_simulation, sync_flush=sync_flush, kinds=kinds)
    with ProcessPoolExecutor(_WORKERS) as pool:
        return [*pool.map(run, range(seed, seed + _RUNS), [_FAULTS_EACH] * _RUNS)]


def _counts(results: list[Judged]) -> str:
    def total(name: str) -> int:
        return sum(getattr(result, name) for result in results)

    return (
        f"{total('faults')} faults, {total('ok')} acknowledged, {total('lost')} lost,"
        f" {total('skipped')} skipped, {total('out_of_order')} out of order,"
        f" {total('repeated')} repeated, {total('unsynced')} unsynced"
    )
