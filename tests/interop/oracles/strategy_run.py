"""Strategies: our functions against Apache's classes on the same random groups."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from sparrowmq.client.strategies import (
    Strategy,
    by_configuration,
    by_machine_room,
    consistent_hash,
    machine_room_nearby,
    strategy_named,
)
from sparrowmq.protocol.message import MessageQueue
from tests.interop.oracles.apache import ask
from tests.interop.oracles.strategy_cases import STRATEGIES, requests

NEARBY = "MACHINE_ROOM_NEARBY-"


@dataclass
class Report:
    """Cases and views per strategy, and where the two differ."""

    cases: dict[str, int] = field(default_factory=dict)
    views: dict[str, int] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        rows = [
            f"{name}: {self.cases[name]} cases, {self.views[name]} views" for name in self.cases
        ]
        rows.append(f"{len(self.differences)} differences")
        return "\n".join(rows + self.differences[:10])


def built(name: str, case: dict[str, Any], queues: list[MessageQueue]) -> Strategy:
    """Our strategy with the parameters of the case."""
    if name.startswith(NEARBY):
        inner = built(name.removeprefix(NEARBY), case, queues)
        return machine_room_nearby(inner, lambda queue: room(queue.broker_name), room)
    match name:
        case "CONFIG":
            return by_configuration([queues[position] for position in case["configured"]])
        case "MACHINE_ROOM":
            return by_machine_room(case["rooms"])
        case "CONSISTENT_HASH":
            return consistent_hash(case["virtual_nodes"])
        case _:
            return strategy_named(name)


def room(name: str) -> str:
    """As in StrategyOracle.java: what stands before the first '-'."""
    return name.partition("-")[0] if "-" in name else ""


def our_answer(case: dict[str, Any]) -> dict[str, Any]:
    """What StrategyOracle.java answers, from our functions."""
    queues = [MessageQueue(*row) for row in case["queues"]]
    positions = {queue: position for position, queue in enumerate(queues)}
    strategy = built(case["strategy"], case, queues)
    views: list[list[int] | str] = []
    for client_id in case["views"]:
        try:
            owned = strategy("group", client_id, queues, case["members"])
            views.append([positions[queue] for queue in owned])
        except ValueError:
            views.append("refused")
    return {"name": strategy.name, "views": views}


def run(cases: int, seed: int, record: str | None = None) -> Report:
    """Ask both for every strategy; with `record`, keep what Apache said."""
    report = Report()
    kept: list[Any] = []
    for strategy in STRATEGIES:
        # one Java process and one list of requests per strategy, to keep both small
        report.cases[strategy] = cases
        report.views[strategy] = 0
        for case, theirs in ask("strategies", requests(strategy, cases, Random(seed))):
            report.views[strategy] += len(case["views"])
            kept.append([case, theirs["views"]])
            if our_answer(case) != theirs:
                report.differences.append(f"{case}: Apache {theirs}, ours {our_answer(case)}")
        if record is None:
            kept.clear()
    if record is not None:
        Path(record).write_text("[\n" + ",\n".join(_small(kept)) + "\n]\n")
    return report


def _small(kept: list[Any]) -> Iterator[str]:
    """Rows for the recorded sample: small cases and some large, without what they do not use."""
    for number, (case, views) in enumerate(kept):
        used = {"strategy", "queues", "members", "views"}
        used |= {"CONFIG": {"configured"}, "MACHINE_ROOM": {"rooms"}}.get(case["strategy"], set())
        if "CONSISTENT_HASH" in case["strategy"]:
            used.add("virtual_nodes")
        row = [{key: value for key, value in case.items() if key in used}, views]
        text = json.dumps(row, separators=(",", ":"))
        if len(text) < (1_200 if number % 20 else 12_000):
            yield text
