"""Every call between two peers ends, in its time, with its own answer or an error, whatever the
network does; and the same seed does it the same way again."""

import asyncio
import logging
import random

import pytest

from sparrowmq.net.errors import CallTimedOut, ConnectionLost
from sparrowmq.net.peers import Peers
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.net.server import Server
from sparrowmq.protocol.headers.offsets import GetMaxOffset
from sparrowmq.testing.simulation import Simulation

LOG = logging.getLogger("sparrowmq.tests.sim")
CLIENTS = 3
TIMEOUT_S = 3.0

routes: Routes[None] = Routes()


@routes.on(GetMaxOffset)
def answer(_: None, request: Request[GetMaxOffset]) -> Reply:
    header = request.header
    return Reply(body=f"{header.topic} {header.queue_id}".encode() + request.body)


async def serve() -> None:
    async with asyncio.TaskGroup() as tasks:
        server = Server(None, routes, tasks, log=LOG)
        await server.listen("0.0.0.0", 10911)
        await asyncio.Event().wait()


class Caller:
    """Asks in a loop, several questions at once, and counts how they ended."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self.name = name
        self.answered = 0
        self.failed = 0
        self.running = 0
        self._rng = rng

    async def ask_forever(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            peers = Peers(tasks, log=LOG)
            while True:
                for number in range(self._rng.randrange(4)):
                    tasks.create_task(self._ask(peers, number))
                await asyncio.sleep(self._rng.random())

    async def _ask(self, peers: Peers, number: int) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        body = self._rng.randbytes(self._rng.randrange(50_000))
        question = GetMaxOffset(topic=self.name, queue_id=number)
        self.running += 1
        try:
            response = await peers.call("server:10911", question, body, timeout_s=TIMEOUT_S)
        except (ConnectionLost, CallTimedOut):
            self.failed += 1
        else:
            self.answered += 1
            assert response.body == f"{self.name} {number}".encode() + body
        finally:
            self.running -= 1
        assert loop.time() - began_s < TIMEOUT_S + 0.001


def run_a_stormy_minute(seed: int) -> tuple[int, list[tuple[int, int]]]:
    with Simulation(seed) as sim:
        rng = sim.rng("faults")
        server = sim.host("server")
        server.start(serve())
        callers = [Caller(f"client-{n}", sim.rng(f"client-{n}")) for n in range(CLIENTS)]
        for caller in callers:
            sim.host(caller.name).start(caller.ask_forever())
        for _ in range(30):
            sim.advance(rng.random() * 4)
            happen(rng, sim)
        calm(sim)
        before = [caller.answered for caller in callers]
        sim.advance(20)
        assert all(caller.answered > was for caller, was in zip(callers, before, strict=True))
        assert all(caller.running <= 12 for caller in callers), "no call is left behind"
        return sim.network.trace_crc, [(caller.answered, caller.failed) for caller in callers]


def happen(rng: random.Random, sim: Simulation) -> None:
    server, client = sim.host("server"), sim.host(f"client-{rng.randrange(CLIENTS)}")
    match rng.randrange(7):
        case 0:
            sim.network.isolate(client)
        case 1:
            sim.paths.cut(server, client)
        case 2:
            sim.paths.heal()
        case 3:
            sim.network.reset_connections(client)
        case 4:
            server.pause()
        case 5:
            server.resume()
        case _:
            server.kill()
            server.start(serve())


def calm(sim: Simulation) -> None:
    sim.host("server").resume()
    sim.paths.heal()


def test_every_call_ends_in_time_and_answers_match_their_questions(seed: int) -> None:
    _, ends = run_a_stormy_minute(seed)
    assert sum(answered for answered, _ in ends) > 20
    assert sum(failed for _, failed in ends) > 0


@pytest.mark.slow
def test_a_storm_repeats_itself_from_its_seed() -> None:
    assert run_a_stormy_minute(11) == run_a_stormy_minute(11)
    assert run_a_stormy_minute(11) != run_a_stormy_minute(12)
