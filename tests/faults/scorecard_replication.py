"""Row 8 of the scorecard: a master with two copies is killed, parted, or loses its power."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from sparrowmq.broker.config import Flush
from tests.faults.kills import KillResult
from tests.faults.network_hosts import NotAllowed
from tests.faults.replication_hosts import part_from_live_master
from tests.faults.replication_kills import kill_master, part_master_and_slave
from tests.faults.replication_power_cuts import cut_masters_power
from tests.faults.replication_storm import run_storm
from tests.faults.scored import Scored

_KEPT = Path("build") / "faults"
_WORKERS = 2
_CUTS_EACH = 10
Result = TypeVar("Result")


def replication(seed: int, small: bool) -> Scored:
    """Row 8: kills and partitions of processes, power cuts and storms in simulation."""
    scored = Scored(8, "master lost, two copies")
    kills, partitions, runs, storms = (3, 1, 1, 4) if small else (50, 5, 10, 1000)
    acknowledged = done = 0
    for flush in ("async", "sync"):
        killed = kill_master(
            seed,
            flush,
            kills=kills,
            acknowledged_each=300 if small else 1500,
            keep_in=_KEPT / f"row8-{flush}-{seed}",
        )
        parted = part_master_and_slave(seed, flush, partitions=partitions)
        results = [killed, parted, *(_unplugged(flush, scored) if not small else ())]
        scored.failures += [str(each) for each in results if not each]
        acknowledged += sum(each.verdict.ok for each in results)
        done += killed.kills
    scored.counts += f"{done} kills, {2 * partitions} partitions, {acknowledged} acknowledged"
    cuts = promised = 0
    for flush_kind in Flush:
        run = partial(cut_masters_power, flush=flush_kind, cuts=_CUTS_EACH)
        for result in _mapped(run, range(seed, seed + runs), small):
            cuts += result.cuts
            promised += result.acknowledged
            scored.failures += [] if result else [str(result)]
    scored.counts += f"; simulated: {cuts} power cuts, {promised} acknowledged"
    found = list(_mapped(run_storm, range(seed, seed + storms), small))
    scored.failures += [str(result) for result in found if not result]
    faults = sum(sum(result.faults.values()) for result in found)
    scored.counts += (
        f"; {len(found)} storms, {faults} faults,"
        f" {sum(result.acknowledged for result in found)} acknowledged"
    )
    return scored


def _unplugged(flush: str, scored: Scored) -> Iterator[KillResult]:
    """A live old master in a network namespace of its own, where the machine has them."""
    try:
        yield part_from_live_master(flush, keep_in=_KEPT / f"row8-hosts-{flush}")
        scored.counts += f"1 unplugged, {flush} flush; "
    except NotAllowed as error:
        scored.counts += f"not unplugged: {error}; "


def _mapped(run: Callable[[int], Result], seeds: Iterable[int], small: bool) -> Iterator[Result]:
    if small:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(_WORKERS) as pool:
        yield from pool.map(run, seeds, chunksize=4)
