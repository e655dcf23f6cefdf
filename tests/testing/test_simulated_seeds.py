"""A simulated run is its seed: it repeats exactly, and a failure says with which seed."""

import asyncio
import random

import pytest

from sparrowmq.testing.errors import UnhandledError
from sparrowmq.testing.paths import Conditions
from sparrowmq.testing.simulation import Simulation
from tests.testing.peers import Echo, Served, connect


def run_a_busy_world(seed: int) -> tuple[int, list[str]]:
    """Many connections, writes, cuts and kills, all from the seed."""
    with Simulation(seed, conditions=Conditions(window_bytes=3000)) as sim:
        rng = sim.rng("scenario")
        Served(sim, sim.host("server"), Echo)

        async def chat() -> None:
            peer = await connect()
            for _ in range(rng.randrange(20)):
                peer.transport.write(rng.randbytes(rng.randrange(4000)))
                await asyncio.sleep(rng.random())

        async def many() -> None:
            async with asyncio.TaskGroup() as group:
                for _ in range(5):
                    group.create_task(chat())

        hosts = [sim.host(f"client-{number}") for number in range(4)]
        for host in hosts:
            host.start(many())
        for _ in range(10):
            sim.advance(rng.random())
            act(rng, sim)
        return sim.network.trace_crc, list(sim.network.trace)


def act(rng: random.Random, sim: Simulation) -> None:
    host = sim.host(f"client-{rng.randrange(4)}")
    match rng.randrange(6):
        case 0:
            host.pause()
        case 1:
            host.resume()
        case 2:
            sim.network.isolate(host)
        case 3:
            sim.paths.heal()
        case 4:
            sim.network.reset_connections(host)
        case _:
            host.kill()


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_gives_the_same_trace(seed: int) -> None:
    crc, trace = run_a_busy_world(seed)
    assert len(trace) > 50
    assert run_a_busy_world(seed) == (crc, trace)


def test_another_seed_gives_another_trace() -> None:
    assert len({run_a_busy_world(seed)[0] for seed in range(5)}) == 5


def test_a_failure_prints_its_seed_and_time() -> None:
    with pytest.raises(AssertionError) as caught, Simulation(4711) as sim:
        sim.advance(12.5)
        raise AssertionError("the test's own")
    assert caught.value.__notes__ == [
        "simulation seed 4711, at 12.500000 s of virtual time",
    ]


def test_the_first_failure_is_raised_and_later_ones_are_noted() -> None:
    async def fail() -> None:
        raise LookupError("unnoticed")

    with pytest.raises(AssertionError) as caught, Simulation(1) as sim:
        sim.host("server").start(fail())
        sim.until_idle()
        raise AssertionError("the test's own")
    assert "unnoticed" in caught.value.__notes__[0]


def test_a_failed_task_that_was_never_awaited_fails_the_simulation() -> None:
    async def fail() -> None:
        raise LookupError("unnoticed")

    with pytest.raises(UnhandledError, match="unnoticed") as caught, Simulation(1) as sim:
        sim.host("server").start(fail())
        sim.until_idle()
    assert "seed 1" in caught.value.__notes__[0]
