"""Crashes at each disk call in turn, including some that lose synced data."""

import random
from collections.abc import Callable, Iterator
from itertools import count
from typing import TypeVar

from sparrowmq.store.layout import file_name
from sparrowmq.testing.recorded_calls import PowerCut
from tests.broker.delivery_world import DeliveryWorld, orders_world

K = TypeVar("K")


def crashed_worlds(
    work: Callable[[DeliveryWorld, dict[K, int]], None],
    *,
    power: bool,
    step: int,
    least: int,
    new_world: Callable[[], DeliveryWorld] = orders_world,
) -> Iterator[tuple[DeliveryWorld, dict[K, int], int]]:
    """The world started again after a crash at the first call of `work`, `step` calls later, and
    so on.

    With it comes what `work` had noted as acknowledged and still is, and the number of the call.
    It ends when `work` gets through, which must take more than `least` calls.
    """
    for call in count(1, step):
        with new_world() as world:
            acknowledged: dict[K, int] = {}
            world.disk.cut_at(call)
            try:
                work(world, acknowledged)
            except PowerCut:
                pass
            else:
                assert call > least
                return
            if power:
                # With asynchronous flush only what was flushed is promised.
                if acknowledged:
                    acknowledged.popitem()
                world.lose_power(random.Random(call))
            else:
                world.kill()
            yield world, acknowledged, call


def lose_log_from(world: DeliveryWorld, log_offset: int) -> None:
    """Like a disk that loses data it reported as durable. The log must be of one file."""
    path = f"commitlog/{file_name(0)}"
    data = world.disk.files()[path]
    world.disk.poke(path, data[:log_offset].ljust(len(data), b"\0"))
