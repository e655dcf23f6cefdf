"""Messages with a delivery time in a world of deliveries: sent, and spilled to disk."""

from sparrowmq.broker.delivery import timer_persistence
from tests.broker.delivery_world import DeliveryWorld, Sent

DAY_MS = 86_400_000


def send_at(world: DeliveryWorld, time_ms: int, body: bytes = b"body", **more: str) -> Sent:
    """To the first queue of orders."""
    return world.post("orders", body, {"TIMER_DELIVER_MS": str(time_ms), **more})


def spill(world: DeliveryWorld) -> None:
    """Write a run of everything in memory."""
    world.broker.delivery.timers.run_entries = 1
    world.flush()
    world.run(timer_persistence.spill(world.broker))
    world.broker.delivery.timers.run_entries = 1_000_000


def runs(world: DeliveryWorld) -> list[str]:
    """The files of runs that there are."""
    return [path for path in world.disk.files() if path.startswith("sparrowmq/timer/0")]
