"""CPU time of the broker for one message, in this process and without sockets.

Needs no Java and little time; the least of many rounds is what the machine can do. Use it before
and after a change of the hot path; `tests/guard` counts calls on the same requests.
"""

import asyncio
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

from bench.contest import Effort
from bench.figures import Figure, at_most
from sparrowmq.clock import monotonic_clock
from sparrowmq.protocol.codes import ResponseCode
from tests.guard import frames
from tests.guard.workload import Wired, wired

_ROUNDS = 25
_REQUESTS = 2_000
_BATCHES = 100
_PULLS = 50
_QUEUES = 8


def hot_path(folder: Path, effort: Effort) -> list[Figure]:
    """A send, a batched and a pulled message, what a parked pull adds to a send."""
    folder.mkdir(parents=True)
    return asyncio.run(_measure(folder))


async def _measure(folder: Path) -> list[Figure]:
    numbers = count()
    async with wired(folder, monotonic_clock) as client:
        send = await _least(client, lambda: _feed(client, _sends(numbers)), _REQUESTS)
        batch = await _least(
            client, lambda: _feed(client, _batches(numbers)), _BATCHES * frames.BATCHED
        )
        client.join()
        client.answers()  # among them the notice that the group has a new member
        found = await _least(client, lambda: _feed(client, _pulls()), _PULLS * frames.BATCHED)
        parked = await _least(client, lambda: _park_and_send(client, numbers), _REQUESTS)
    work = "in process, without sockets"
    return [
        Figure(work, "a send, index included", "µs CPU", send),
        Figure(work, "a message of a batch, index included", "µs CPU", batch),
        Figure(work, "a message that a pull finds", "µs CPU", found),
        Figure(
            work, "a parked pull on top of its send", "µs CPU", parked - send, None, at_most(15)
        ),
    ]


async def _least(client: Wired, prepare: Callable[[], Callable[[], None]], messages: int) -> float:
    """Microseconds a message, the work that follows in the next tick included.

    A request that is not answered with success would time something else, such as a warning.
    """
    took = []
    for _ in range(_ROUNDS):
        # Without it, pulls end `unsynced_window` messages past the last one that is durable.
        await client.broker.durability.flush()
        act = prepare()
        began = time.thread_time()
        act()
        client.broker.store.tick(client.broker.clock())
        took.append(time.thread_time() - began)
        refused = set(client.answers()) - {ResponseCode.SUCCESS}
        assert not refused, f"answered with {refused}"
        await asyncio.sleep(0)  # the wake-ups that `wake` was quicker than
    return min(took) / messages * 1e6


def _feed(client: Wired, requests: list[bytes]) -> Callable[[], None]:
    return lambda: client.feed(requests)


def _sends(numbers: "count[int]") -> list[bytes]:
    return [frames.send(next(numbers), number % _QUEUES) for number in range(_REQUESTS)]


def _batches(numbers: "count[int]") -> list[bytes]:
    return [frames.batch(next(numbers), number % _QUEUES) for number in range(_BATCHES)]


def _pulls() -> list[bytes]:
    return [frames.pull(number, number * frames.BATCHED) for number in range(_PULLS)]


def _park_and_send(client: Wired, numbers: "count[int]") -> Callable[[], None]:
    offset = client.broker.store.max_offset(frames.TOPIC, 0)
    pairs = [
        (frames.pull(next(numbers), offset + number), frames.send(next(numbers)))
        for number in range(_REQUESTS)
    ]

    def act() -> None:
        for pull, send in pairs:
            client.receive(pull)
            client.receive(send)
            client.wake()

    return act
