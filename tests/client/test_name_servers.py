"""A list of name servers: which one is asked, and what happens when some do not answer."""

import asyncio
import logging
import random
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sparrowmq.backoff import Backoff
from sparrowmq.client.client_core import find_own_address
from sparrowmq.client.errors import BrokerRefused, NoNameServer, NoRoute
from sparrowmq.client.group.group_consumer import core_of_consumer
from sparrowmq.client.name_servers import NameServers
from sparrowmq.net.peers import Peers
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.net.server import Server
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.nameserver import GetTopicRoute
from sparrowmq.protocol.route import TopicRoute
from sparrowmq.testing.paths import Conditions
from sparrowmq.testing.sim_cluster import SimCluster
from sparrowmq.testing.simulation import Simulation
from tests.client.members import Member, create_topic
from tests.sim.consumers import Feeder

log = logging.getLogger("tests.client")
routes: Routes["Asked"] = Routes()


class Asked:
    """One name server: whether it answers, and the requests it got."""

    def __init__(self) -> None:
        self.is_mute = False
        self.code = ResponseCode.SUCCESS
        self.topics: list[str] = []


@routes.on(GetTopicRoute)
def topic_route(server: Asked, request: Request[GetTopicRoute]) -> Any:
    # Apache's answer with JSON that only Java reads unless they are asked for the standard
    assert request.header.accept_standard_json_only
    server.topics.append(request.header.topic)
    if server.is_mute:
        return None
    return Reply(body=TopicRoute().to_json(), code=server.code, remark="not supported here")


class World:
    """Name servers a, b and c and a client that asks them, beginning with a."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.servers = {name: Asked() for name in "abc"}
        for name, server in self.servers.items():
            sim.host(name).start(self._serve(server))
        sim.until_idle()

    async def _serve(self, context: Asked) -> None:
        async with asyncio.TaskGroup() as tasks:
            server = Server(context, routes, tasks, log=log)
            await server.listen("0.0.0.0", 9876)
            try:
                await asyncio.Event().wait()
            finally:
                await server.close()

    def ask(self, work: Callable[[NameServers], Awaitable[Any]], first: int = 0) -> Any:
        async def run() -> Any:
            async with asyncio.TaskGroup() as tasks:
                peers = Peers(tasks, log=log)
                addresses = [f"{self.sim.host(name).ip}:9876" for name in self.servers]
                try:
                    return await work(NameServers(peers, addresses, first=first))
                finally:
                    await peers.close()

        return self.sim.run(run(), on=self.sim.host("client"))

    def asked(self) -> dict[str, int]:
        return {name: len(server.topics) for name, server in self.servers.items()}


@contextmanager
def world() -> Iterator[World]:
    with Simulation(1, conditions=Conditions(latency_s=(0.0, 0.0))) as sim:
        yield World(sim)


@pytest.mark.parametrize(("host", "elsewhere"), [("127.0.0.1", False), ("localhost", True)])
def test_a_host_name_is_resolved_off_the_loop(
    monkeypatch: pytest.MonkeyPatch, host: str, elsewhere: bool
) -> None:
    threads: list[threading.Thread] = []

    def look_up(name_server: str) -> str:
        threads.append(threading.current_thread())
        return "127.0.0.1"

    monkeypatch.setattr("sparrowmq.client.client_core.own_address", look_up)
    assert asyncio.run(find_own_address(f"{host}:9876")) == "127.0.0.1"
    assert [thread is not threading.current_thread() for thread in threads] == [elsewhere]


def test_the_one_that_answers_is_kept() -> None:
    async def ask_thrice(servers: NameServers) -> None:
        for _ in range(3):
            await servers.route("orders")

    with world() as w:
        w.ask(ask_thrice)
        assert w.asked() == {"a": 3, "b": 0, "c": 0}


def test_the_first_one_asked_may_be_any_and_the_last_is_followed_by_the_first() -> None:
    with world() as w:
        w.ask(lambda servers: servers.route("orders"), first=2)
        assert w.asked() == {"a": 0, "b": 0, "c": 1}
        w.sim.host("c").kill()
        w.ask(lambda servers: servers.route("orders"), first=2)
        assert w.asked() == {"a": 1, "b": 0, "c": 1}


def test_one_that_refuses_to_answer_is_named_with_its_reason() -> None:
    async def ask(servers: NameServers) -> None:
        with pytest.raises(BrokerRefused, match=r"answered 1 \(SYSTEM_ERROR\)") as raised:
            await servers.route("orders")
        assert raised.value.address == servers.addresses[1]

    with world() as w:
        w.sim.host("a").kill()
        w.servers["b"].code = ResponseCode.SYSTEM_ERROR
        w.ask(ask)
        assert w.asked() == {"a": 0, "b": 1, "c": 0}


def test_a_broker_given_as_a_name_server_is_skipped_and_named_if_it_is_the_only_one() -> None:
    """A broker knows no request for a route. People mix up the two addresses."""

    async def ask(servers: NameServers) -> None:
        await servers.route("orders")

    async def ask_the_broker(servers: NameServers) -> None:
        text = (
            rf"\({servers.addresses[0]}, .*from the argument name_servers\): "
            rf"10\S+:9876 is not a name server, but perhaps a broker \(not supported here\); name"
            " servers listen on port 9876 by default"
        )
        with pytest.raises(NoNameServer, match=text):
            await servers.route("orders")

    with world() as w:
        w.servers["a"].code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        w.ask(ask)
        assert w.asked() == {"a": 1, "b": 1, "c": 0}
        for server in w.servers.values():
            server.code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        w.ask(ask_the_broker)


def test_a_client_moves_from_a_dead_name_server_to_the_next_and_stays_there() -> None:
    async def ask_thrice(servers: NameServers) -> None:
        for _ in range(3):
            await servers.route("orders")

    with world() as w:
        w.sim.host("a").kill()
        w.ask(ask_thrice)
        assert w.asked() == {"a": 0, "b": 3, "c": 0}


def test_questions_that_fail_together_do_not_go_around_in_a_circle() -> None:
    async def ask_together(servers: NameServers) -> None:
        await asyncio.gather(*(servers.route(f"t{n}") for n in range(3)))
        await servers.route("after")

    with world() as w:
        w.sim.host("a").kill()
        w.ask(ask_together)
        assert w.asked() == {"a": 0, "b": 4, "c": 0}


def test_a_silent_name_server_leaves_the_others_half_of_the_remaining_time() -> None:
    with world() as w:
        w.servers["a"].is_mute = True
        w.servers["b"].is_mute = True
        began_s = w.sim.now_s
        w.ask(lambda servers: servers.route("orders"))
        assert w.sim.now_s - began_s == pytest.approx(1.5 + 0.75)


def test_three_seconds_are_the_time_of_all_of_them_together() -> None:
    async def ask(servers: NameServers) -> None:
        with pytest.raises(NoRoute, match="no name server answers"):
            await servers.route("orders")

    with world() as w:
        for server in w.servers.values():
            server.is_mute = True
        began_s = w.sim.now_s
        w.ask(ask)
        assert w.asked() == {"a": 1, "b": 1, "c": 1}
        assert w.sim.now_s - began_s == pytest.approx(3.0)


def test_one_that_was_silent_is_not_asked_first_again() -> None:
    async def ask_thrice(servers: NameServers) -> None:
        for _ in range(3):
            await servers.route("orders")

    with world() as w:
        w.servers["a"].is_mute = True
        w.ask(ask_thrice)
        assert w.asked() == {"a": 1, "b": 3, "c": 0}


def test_a_name_server_that_timed_out_is_not_asked_first_again() -> None:
    async def give_up(servers: NameServers) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await servers.route("orders")
        await servers.route("orders")

    with world() as w:
        w.servers["a"].is_mute = True
        w.ask(give_up)
        assert w.asked() == {"a": 1, "b": 1, "c": 0}


def test_if_no_name_server_answers_the_error_names_them_all() -> None:
    async def ask(servers: NameServers) -> None:
        with pytest.raises(NoRoute, match="no name server answers") as raised:
            await servers.route("orders")
        assert all(address in str(raised.value) for address in servers.addresses)

    with world() as w:
        for name in "abc":
            w.sim.host(name).kill()
        w.ask(ask)


def test_waits_grow_to_a_limit_and_differ_between_clients() -> None:
    def waits(seed: int) -> list[float]:
        backoff = Backoff(longest_s=30, rng=random.Random(seed))
        return [backoff.wait_s(failures) for failures in range(1, 12)]

    assert waits(1) == waits(1)
    assert waits(1) != waits(2)
    for failures, (one, other) in enumerate(zip(waits(1), waits(2), strict=True)):
        longest_s = min(30, 2**failures)
        assert longest_s / 2 <= min(one, other) <= max(one, other) <= longest_s
    assert [Backoff().wait_s(failures) for failures in (0, 1, 5, 6, 10**9)] == [1, 1, 16, 30, 30]


@pytest.mark.slow
def test_sends_and_consumption_continue_while_every_name_server_is_down() -> None:
    with SimCluster(seed=1, name_servers=2).run() as sim:
        create_topic(sim)
        member = Member(sim)
        sim.advance(2)
        feeder = Feeder(sim)
        sim.advance(1)
        for node in sim.name_servers.values():
            node.host.kill()
        sim.advance(60)
        sent = len(feeder.sent)
        feeder.stop()
        sim.advance(1)
        assert sent > 2_000
        assert sorted(member.got) == sorted(feeder.sent)


def test_a_client_finds_name_servers_that_came_back_sooner_than_its_next_poll() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim)
        route_table = core_of_consumer(member.consumer).route_table
        refresh = route_table.refresh
        answered_s: list[float] = []

        async def watch(topic: str) -> Any:
            found = await refresh(topic)
            answered_s.append(sim.now_s)
            return found

        route_table.refresh = watch  # type: ignore[method-assign]
        sim.until(lambda: bool(answered_s))
        [server] = sim.name_servers.values()
        sim.advance(25)
        server.host.kill()
        sim.advance(8)  # the poll after 30 s finds none of them, and is repeated ever later
        server.start()
        back_s = sim.now_s
        sim.advance(20)
        assert next(at_s for at_s in answered_s if at_s > back_s) - back_s < 8
