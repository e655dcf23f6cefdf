"""Strategies by name, for settings and command lines."""

from collections.abc import Mapping
from types import MappingProxyType

from sparrowmq.client.strategies.classic import AVG, AVG_BY_CIRCLE
from sparrowmq.client.strategies.consistent_hash import CONSISTENT_HASH
from sparrowmq.client.strategies.sticky import STICKY
from sparrowmq.client.strategies.strategy import Strategy

NAMED: Mapping[str, Strategy] = MappingProxyType(
    {strategy.name: strategy for strategy in (AVG, AVG_BY_CIRCLE, CONSISTENT_HASH, STICKY)}
)
"""The strategies that need no settings besides their name."""

_BUILT_BY = {
    "CONFIG": "by_configuration(queues)",
    "MACHINE_ROOM": "by_machine_room(rooms)",
    "MACHINE_ROOM_NEARBY": "machine_room_nearby(inner, room_of_queue, room_of_client)",
    "PINNED_MACHINES": "pinned_machines(addresses)",
}


def strategy_named(name: str) -> Strategy:
    """The strategy of that name. Raises ValueError that lists the known ones."""
    strategy = NAMED.get(name)
    if strategy is not None:
        return strategy
    builder = _BUILT_BY.get(name.partition("-")[0])
    if builder is not None:
        raise ValueError(f"strategy {name} needs more than its name: build it with {builder}")
    raise ValueError(f"no strategy is named {name!r}: there are {', '.join(sorted(NAMED))}")
