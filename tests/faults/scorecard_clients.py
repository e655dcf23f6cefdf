"""The rows of the scorecard about clients: groups, order, name servers."""

from tests.broker.test_delivery_kills import group_faults, run_with_kills
from tests.faults.churn import judge
from tests.faults.churn_processes import churn_in_processes
from tests.faults.churn_sim import churn_in_simulation
from tests.faults.clock_steps import set_clock
from tests.faults.delivery_kills_processes import deliveries_over_kills
from tests.faults.nameserver_outage import DOWN_S
from tests.faults.nameserver_outage_processes import outage_in_processes, register_many
from tests.faults.nameserver_outage_sim import outage_in_simulation
from tests.faults.order_under_churn import judge_order
from tests.faults.order_under_churn_processes import order_in_processes
from tests.faults.order_under_churn_sim import order_in_simulation
from tests.faults.scored import Scored
from tests.sim.test_clock_steps import lived


def churn(seed: int, small: bool) -> Scored:
    """Row 9."""
    scored = Scored(9, "members join, leave, crash")
    seeds = range(seed, seed + (1 if small else 10))
    runs = {"simulated": [judge(one, churn_in_simulation(one, 60)) for one in seeds]}
    scored.simulated = len(seeds)
    if not small:
        runs["processes"] = [judge(seed, churn_in_processes(seed, 1000))]
    texts = []
    for kind, results in runs.items():
        scored.failures += [f"{kind}, {result}" for result in results if not result]
        texts.append(
            f"{kind}: {sum(one.changes.total() for one in results)} changes,"
            f" {sum(one.messages for one in results)} messages,"
            f" {sum(one.redelivered for one in results)} redelivered after crashes,"
            f" settled ≤ {max(one.settled_s for one in results):.1f} s"
        )
    scored.counts = "; ".join(texts)
    return scored


def order_under_churn(seed: int, small: bool) -> Scored:
    """Row 11."""
    scored = Scored(11, "order under churn, pause, kill")
    runs = {"simulated": judge_order(seed, order_in_simulation(seed, 60 if small else 1000))}
    scored.simulated = 1
    if not small:
        processes = order_in_processes(seed, messages=1_000_000, changes=60, freezes=2)
        runs["processes"] = judge_order(seed, processes)
    scored.failures = [f"{kind}, {result}" for kind, result in runs.items() if not result]
    scored.counts = "; ".join(
        f"{kind}: {result.changes.total()} changes, {result.messages} messages, taken over"
        f" ≤ {result.killed_s:.1f} s after kills, ≤ {result.frozen_s:.1f} s after pauses"
        for kind, result in runs.items()
    )
    return scored


def nameserver_outage(seed: int, small: bool) -> Scored:
    """Row 12."""
    scored = Scored(12, "name servers down, many brokers")
    outages = [outage_in_simulation(number) for number in range(seed, seed + (2 if small else 50))]
    scored.simulated = len(outages)
    if not small:
        outages.append(outage_in_processes(DOWN_S))
    size = (20, 200) if small else (200, 1000)
    registered, again = register_many(*size), register_many(*size, is_watched=True)
    for outage in outages:
        scored.failures += [f"seed {seed}, {problem}" for problem in outage.problems()]
    scored.failures += registered.problems() + again.problems()
    slowest_s = max(outage.whole_s for outage in outages)
    sent = sum(outage.sent_while_down for outage in outages)
    scored.counts = (
        f"{len(outages)} outages, {sent} sent without name servers, routes whole"
        f" ≤ {slowest_s:.1f} s; {registered}"
    )
    return scored


def delivery_kills(seed: int, small: bool) -> Scored:
    """Row 10."""
    scored = Scored(10, "deliveries over broker kills")
    promises = deliveries_over_kills(seed, 3 if small else 200)
    scored.failures = [f"seed {seed}, {problem}" for problem in promises.problems()]
    seeds, kills = range(seed, seed + (1 if small else 25)), 8
    for number in seeds:
        said, delivered = run_with_kills(number, kills=kills)
        scored.failures += [
            f"simulated, seed {number}, {one}" for one in group_faults(said, delivered)
        ]
    scored.simulated = len(seeds)
    scored.counts = f"{promises}; {len(seeds) * kills} simulated kills"
    return scored


def clock_steps(seed: int, small: bool) -> Scored:
    """Row 17."""
    scored = Scored(17, "clock set forward and back")
    seen = set_clock(seed, 6 if small else 200)
    scored.failures = [f"seed {seed}, {problem}" for problem in seen.problems()]
    seeds, steps = range(seed, seed + (1 if small else 100)), 10
    for number in seeds:
        faults = lived(number, steps=steps).faults()
        scored.failures += [f"simulated, seed {number}, {one}" for one in faults]
    scored.simulated = len(seeds)
    scored.counts = f"{seen}; {len(seeds) * steps} simulated steps"
    return scored
