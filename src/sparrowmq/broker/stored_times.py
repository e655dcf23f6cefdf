"""The store times that reports need: those in memory at once, the others from the device.

Workers read what has to come from the device, while the loop goes on (`net/slices.py`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparrowmq.net.slices import Slice
from sparrowmq.store.store import ColdTime

if TYPE_CHECKING:
    from sparrowmq.broker.broker import Broker

_COLD_AT_ONCE = 256
"""Store times that a worker reads in one go: about 15 ms if they are cached."""
Place = tuple[str, int, int]
"""(topic, queue, offset)."""


async def stored_times(broker: "Broker", places: Sequence[Place], turn: Slice) -> list[int]:
    """When the messages at these places were stored; -1 for each that is not there."""
    times: list[int] = []
    cold: list[ColdTime] = []
    cold_at: list[int] = []
    for place in places:
        time = broker.store.time_at(*place)
        if isinstance(time, ColdTime):
            cold_at.append(len(times))
            cold.append(time)
            time = -1
        times.append(time)
        if turn.is_over:
            await turn.pause()
    for first in range(0, len(cold), _COLD_AT_ONCE):
        part = cold[first : first + _COLD_AT_ONCE]
        loaded = await broker.workers.run(broker.store.load_times, part)
        for at, time in zip(cold_at[first:], loaded, strict=False):
            times[at] = time
    return times
