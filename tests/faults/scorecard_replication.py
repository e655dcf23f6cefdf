"""Row 8 of the scorecard: a master with two copies is killed, diverged, or loses its power."""

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
from tests.faults.role_changes import change_roles
from tests.faults.scored import Scored
from tests.patience import PATIENCE_S

_KEPT = Path("build") / "faults"
_WORKERS = 2
_READABLE_S = 5.0
"""A client continues from the slave within this time. Not judged next to other tests."""
_LONGEST_SEND_S = 1.0
"""A send waits for a planned change of roles no longer. Not judged next to other tests."""
_CUTS_EACH = 10
_STORMS = 2000
"""About twelve minutes on two cores."""
Result = TypeVar("Result")


def replication(seed: int, small: bool, only: str = "") -> Scored:
    """Row 8, or those of its parts that have `only` in their names."""
    scored = Scored(8, "master lost, two copies")
    parts: dict[str, Callable[[int, bool, Scored], str]] = {
        "kills async": partial(_killed_and_parted, flush="async"),
        "kills sync": partial(_killed_and_parted, flush="sync"),
        "changes of roles": _changed_roles,
        "power cuts": _cut_off,
        "storms": _in_storms,
    }
    chosen = [part for name, part in parts.items() if only in name]
    if not chosen:
        scored.failures.append(f"nothing has {only!r} in its name; there are {', '.join(parts)}")
    scored.counts = "; ".join(part(seed, small, scored) for part in chosen)
    return scored


def _killed_and_parted(seed: int, small: bool, scored: Scored, *, flush: str) -> str:
    kills, partitions = (3, 1) if small else (50, 5)
    killed = kill_master(
        seed,
        flush,
        kills=kills,
        acknowledged_each=300 if small else 1500,
        keep_in=_KEPT / f"row8-{flush}-{seed}",
    )
    results = [killed, part_master_and_slave(seed, flush, partitions=partitions)]
    cable = "" if small else f", {_unplugged(flush, results)}"
    scored.failures += [str(each) for each in results if not each]
    if killed.slowest_read_s > _READABLE_S and not small:
        scored.failures.append(f"the slave was not read for {killed.slowest_read_s:.1f} s")
    if not killed.compared_progress:
        scored.failures.append("no progress of a group was compared")
    acknowledged = sum(each.verdict.ok for each in results)
    return (
        f"{flush} flush: {killed.kills} kills, {partitions} partitions{cable},"
        f" {acknowledged} acknowledged, read from the slave after {killed.slowest_read_s:.2f} s"
        f" at most, progress compared {killed.compared_progress} times"
    )


def _unplugged(flush: str, results: list[KillResult]) -> str:
    """A live old master in a separate network namespace, if the machine supports them."""
    try:
        results.append(part_from_live_master(flush, keep_in=_KEPT / f"row8-hosts-{flush}"))
    except NotAllowed as error:
        return f"no cable unplugged ({error})"
    return "1 cable unplugged"


def _changed_roles(_: int, small: bool, scored: Scored) -> str:
    counts = []
    for flush in ("async",) if small else ("async", "sync"):
        keep_in = _KEPT / f"row8-changes-{flush}"
        # Next to other tests a send may have to wait for the CPU.
        timeout_s = PATIENCE_S if small else 3.0
        changes = 2 if small else 6
        result = change_roles(flush, changes=changes, timeout_s=timeout_s, keep_in=keep_in)
        scored.failures += [] if result else [str(result)]
        if result.longest_send_s > _LONGEST_SEND_S and not small:
            scored.failures.append(
                f"{flush} flush: a send took {result.longest_send_s:.2f} s in a change of roles,"
                f" {_LONGEST_SEND_S:.0f} s allowed"
            )
        counts.append(
            f"{flush} flush: {result.changes} planned changes of roles, {result.sent} sends, the"
            f" longest {result.longest_send_s:.2f} s, {result.short} answered with a warning"
        )
    return "; ".join(counts)


def _cut_off(seed: int, small: bool, scored: Scored) -> str:
    cuts = promised = 0
    for flush in Flush:
        run = partial(cut_masters_power, flush=flush, cuts=_CUTS_EACH)
        for result in _mapped(run, range(seed, seed + (1 if small else 10)), small):
            scored.simulated += 1
            cuts += result.cuts
            promised += result.acknowledged
            scored.failures += [] if result else [str(result)]
    return f"simulated: {cuts} power cuts, {promised} acknowledged"


def _in_storms(seed: int, small: bool, scored: Scored) -> str:
    found = list(_mapped(run_storm, range(seed, seed + (4 if small else _STORMS)), small))
    scored.simulated += len(found)
    scored.failures += [str(result) for result in found if not result]
    faults = sum(sum(result.faults.values()) for result in found)
    acknowledged = sum(result.acknowledged for result in found)
    handed_over = sum(result.handed_over for result in found)
    return (
        f"{len(found)} storms, {faults} faults, {handed_over} changes of roles,"
        f" {acknowledged} acknowledged"
    )


def _mapped(run: Callable[[int], Result], seeds: Iterable[int], small: bool) -> Iterator[Result]:
    if small:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(_WORKERS) as pool:
        yield from pool.map(run, seeds, chunksize=4)
