"""Random groups: uneven brokers, one to 200 members, members that are not listed, odd names."""

from collections.abc import Iterator
from math import exp, log
from random import Random
from typing import Any

STRATEGIES = (
    "AVG",
    "AVG_BY_CIRCLE",
    "CONSISTENT_HASH",
    "CONFIG",
    "MACHINE_ROOM",
    "MACHINE_ROOM_NEARBY-AVG",
    "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE",
    "MACHINE_ROOM_NEARBY-CONSISTENT_HASH",
)
ROOMS = ("r1", "r2", "r3", "日本", "\U0001f600", "\uffee")
MOST_MEMBERS = 200
ALL_VIEWS = 24
"""Apache's consistent hash takes quadratic time: larger groups are seen through this many members,
and every 25th of them through all."""


def requests(strategy: str, cases: int, rng: Random) -> Iterator[dict[str, Any]]:
    """What StrategyOracle.java is asked."""
    for number in range(cases):
        queues = _queues(strategy, rng)
        members = _members(strategy, rng)
        views = [*members, f"r1-absent@{number}"]
        if rng.random() < 0.02:
            views.append("")
        if rng.random() < 0.01:
            queues, views = [], views[:2]
        elif rng.random() < 0.01:
            members, views = [], views[:2]
        if "CONSISTENT_HASH" in strategy and len(views) > ALL_VIEWS and number % 25:
            views = [views[0], *rng.sample(views[1:-1], ALL_VIEWS - 2), views[-1]]
        yield {
            "strategy": strategy,
            "queues": queues,
            "members": members,
            "views": views,
            "rooms": rng.sample(ROOMS, rng.randint(1, 3)),
            "configured": [position for position in range(len(queues)) if rng.random() < 0.3],
            "virtual_nodes": rng.choice((10, 10, 10, 10, 10, 0, 1, 3)),
        }


def _queues(strategy: str, rng: Random) -> list[tuple[str, str, int]]:
    topic = rng.choice(("orders", "%RETRY%billing", "t"))
    queues: list[tuple[str, str, int]] = []
    for number in range(rng.choice((1, 1, 2, 3, 5))):
        broker = _broker(strategy, number, rng)
        queues += [(topic, broker, queue_id) for queue_id in range(_skewed(rng, 64))]
    queues = sorted(set(queues))
    if rng.random() < 0.05:  # sorting is up to the caller: the strategies must not depend on it
        rng.shuffle(queues)
    return queues


def _broker(strategy: str, number: int, rng: Random) -> str:
    if strategy == "MACHINE_ROOM":
        odd = ("plain", "@x", "r1@", "r1@b@", "r1@b@c", "@", "r1@@b", "")
        usual = f"{rng.choice(ROOMS)}@broker-{number}"
        return rng.choice(odd) if rng.random() < 0.15 else usual
    if "NEARBY" in strategy:
        return "nowhere" if rng.random() < 0.01 else f"{rng.choice(ROOMS)}-broker-{number}"
    return f"broker-{number}"


def _members(strategy: str, rng: Random) -> list[str]:
    members = []
    for _ in range(_skewed(rng, MOST_MEMBERS)):
        room = f"{rng.choice(ROOMS[:3])}-" if "NEARBY" in strategy and rng.random() < 0.999 else ""
        address = f"10.0.{rng.randrange(256)}.{rng.randrange(256)}"
        members.append(f"{room}{address}@{rng.randrange(99999)}")
    if rng.random() < 0.02:
        members.append(rng.choice(members))  # listed twice
    return members if rng.random() < 0.05 else sorted(members)


def _skewed(rng: Random, most: int) -> int:
    """From 1 to `most`, each magnitude as likely as the next."""
    return round(exp(rng.uniform(0, log(most))))
