"""Rounds of delivery for ever: one when something is due, another when space may be back."""

from collections.abc import Awaitable, Callable

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.delivery.delay_alarm import Alarm
from sparrowmq.clock import Clock
from sparrowmq.store.errors import DiskFull, StoreStopped

TRY_AGAIN_MS = 1_000
"""How soon after it found no space."""


async def repeat(
    broker: Broker,
    alarm: Alarm,
    deliver_due: Callable[[Broker], Awaitable[int | None]],
    trouble: str,
    clock: Clock,
) -> None:
    """Call `deliver_due`, which tells when the next is due, until the store is stopped.

    `trouble` is what the log says of a round without space, `clock` what the times are of.
    """
    while True:
        alarm.begins()
        try:
            due_ms = await deliver_due(broker)
        except DiskFull as error:
            broker.log.warning("%s: %s", trouble, error)
            due_ms = clock() + TRY_AGAIN_MS
        except StoreStopped:
            return  # the broker is about to end
        await alarm.wait(due_ms, clock())
