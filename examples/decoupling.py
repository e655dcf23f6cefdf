"""Decoupling: a shop tells what happened once, and any number of services act on it.

    sparrowmq up                                     # in another terminal
    python -m examples.decoupling

The shop knows a topic and none of the services. Each service is a consumer group of its own: it
gets every event that its filter lets through, at its own pace, and one that is down misses nothing.
To add a service is to start a new group; here all three start after the shop has gone.
"""

import asyncio
import secrets

from sparrowmq import Message, Producer, PushConsumer

TOPIC = "shop-events"
WANTED = {
    "billing": {"placed"},
    "stock": {"placed", "cancelled"},
    "statistics": {"placed", "cancelled", "reviewed"},
}
"""Which events each service acts on."""
Event = tuple[str, str]
"""What happened, to which order."""


async def shop(events: list[Event]) -> None:
    """Returns as soon as the broker has the events."""
    async with Producer("shop") as producer:
        for what, order in events:
            # The key sends all events of an order to one queue, the tag is what filters look at
            await producer.send(Message.json(TOPIC, order, tags=what), key=order)


async def service(name: str, events: set[Event]) -> None:
    """A real one is a program of its own and never ends; this one ends after these events."""
    wanted = " || ".join(sorted(WANTED[name]))
    async with PushConsumer(
        f"shop-{name}", {TOPIC: wanted}, from_where="FIRST_OFFSET", orderly=True
    ) as consumer:
        async for message in consumer:
            event = (message.tags or "", message.json(str))
            print(f"{name}: order {event[1]} was {event[0]}")
            events.discard(event)
            if not events:
                break


async def main() -> None:
    run = secrets.token_hex(2)  # so that a second run tells its orders from those of the first
    happened = [
        ("placed", f"{run}-1"),
        ("placed", f"{run}-2"),
        ("cancelled", f"{run}-1"),
        ("reviewed", f"{run}-2"),
    ]
    await shop(happened)
    async with asyncio.TaskGroup() as services:
        for name, wanted in WANTED.items():
            events = {event for event in happened if event[0] in wanted}
            services.create_task(service(name, events))


if __name__ == "__main__":
    asyncio.run(main())
