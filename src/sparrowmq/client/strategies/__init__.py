"""Allocation strategies: which member of a group consumes which queues. Pure functions."""

from sparrowmq.client.strategies.classic import (
    AVG,
    AVG_BY_CIRCLE,
    averagely,
    averagely_by_circle,
    by_configuration,
    pinned_machines,
)
from sparrowmq.client.strategies.consistent_hash import CONSISTENT_HASH, consistent_hash
from sparrowmq.client.strategies.machine_room import by_machine_room, machine_room_nearby
from sparrowmq.client.strategies.registry import NAMED, strategy_named
from sparrowmq.client.strategies.sticky import STICKY, plan_sticky, sticky
from sparrowmq.client.strategies.strategy import Allocate, Strategy

__all__ = [
    "AVG",
    "AVG_BY_CIRCLE",
    "CONSISTENT_HASH",
    "NAMED",
    "STICKY",
    "Allocate",
    "Strategy",
    "averagely",
    "averagely_by_circle",
    "by_configuration",
    "by_machine_room",
    "consistent_hash",
    "machine_room_nearby",
    "pinned_machines",
    "plan_sticky",
    "sticky",
    "strategy_named",
]
