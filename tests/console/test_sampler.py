"""The sampler sends few requests to a large cluster and still covers all groups in one round."""

import re
from collections import Counter
from typing import Any

import pytest

from sparrowmq import Admin, Client
from sparrowmq.admin.cluster_calls import ClusterCalls
from sparrowmq.admin.errors import BrokerRefusal
from sparrowmq.console.console import Console
from sparrowmq.console.history import MOST_SERIES
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.group_config import SubscriptionGroupConfig
from sparrowmq.protocol.headers.statistics import GetBrokerConsumeStats
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.admin.operator import numbered, send
from tests.console.visitor import Visitor, as_visitor

GROUPS = 1_000


def fill(sim: RunningCluster) -> None:
    """A topic of six messages, and groups that have read none, one, two, … or all of them."""

    async def work(client: Client, console: Console, visitor: Visitor) -> None:
        await Admin(client=client).create_topic("orders", queues=1)
        await send(client, *numbered("orders", 6))
        groups = [f"group-{number:04}" for number in range(GROUPS)]
        sim.broker.groups.put(*(SubscriptionGroupConfig(group_name=name) for name in groups))
        for number, name in enumerate(groups):
            sim.broker.offsets.commit(name, "orders", 0, number % 7)

    as_visitor(sim, work)


def count(monkeypatch: pytest.MonkeyPatch, refused: tuple[type, ...] = ()) -> Counter[str]:
    """What brokers are asked, by kind."""
    ask = ClusterCalls.ask
    asked: Counter[str] = Counter()

    async def counting(self: ClusterCalls, address: str, header: Any, *more: Any) -> Any:
        asked[type(header).__name__] += 1
        if isinstance(header, refused):
            raise BrokerRefusal(address, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not here")
        return await ask(self, address, header, *more)

    monkeypatch.setattr(ClusterCalls, "ask", counting)
    return asked


def test_one_round_samples_all_groups_with_few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(_: Client, console: Console, visitor: Visitor) -> Console:
        asked.clear()
        await console.sampler.sample_names()
        return console

    with SimCluster(seed=1).run() as sim:
        fill(sim)
        asked = count(monkeypatch)
        console = as_visitor(sim, work)
    figures = console.sampler.figures
    assert figures.lag.missing == ()
    assert figures.lag.value == sum(6 - number % 7 for number in range(GROUPS))
    assert figures.groups["group-0008"].lag == 5
    assert asked.total() < 200, asked


def test_where_brokers_do_not_tell_of_all_groups_some_are_asked_in_each_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(_: Client, console: Console, visitor: Visitor) -> Console:
        console.sampler.seen_groups.mark("group-0999")
        await console.sampler.sample_names()
        return console

    with SimCluster(seed=1).run() as sim:
        fill(sim)
        asked = count(monkeypatch, (GetBrokerConsumeStats,))
        console = as_visitor(sim, work)
    assert len(console.sampler.figures.groups) == 60
    assert "group-0999" in console.sampler.figures.groups
    assert console.sampler.figures.lag.missing == ("940 groups not counted yet",)
    assert asked.total() < 1_000, asked


def test_series_of_many_groups_leave_room_for_those_of_topics_and_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(_: Client, console: Console, visitor: Visitor) -> Console:
        await console.sampler.sample_brokers()
        console.sampler.seen_groups.mark("group-0006")  # without lag
        for _round in range(2):
            await console.sampler.sample_names()
        return console

    with SimCluster(seed=1).run() as sim:
        fill(sim)
        history = as_visitor(sim, work).history
    assert len(history) < MOST_SERIES
    kept = ["in", "lag", "stored/orders", "lag/group-0000", "consumed/group-0000", "lag/group-0006"]
    assert [name for name in kept if history.series(name) is None] == []
    assert history.series("lag/group-0013") is None, "it read all, and its page is not open"


def test_sampling_slows_down_while_a_broker_hangs_and_the_overview_shows_it() -> None:
    async def work(_: Client, console: Console, visitor: Visitor) -> str:
        assert "are sampled every" not in (await visitor.get("/")).text
        sim.host("broker-b").pause()
        await console.sampler.sample_names()
        return (await visitor.get("/")).text

    with SimCluster(seed=1, brokers=2).run() as sim:
        assert "Groups and topics are sampled every 60 s" in as_visitor(sim, work)


def test_the_doctor_of_the_overview_examines_the_busiest_and_shows_how_many_of_all() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> tuple[str, str]:
        await Admin(client=client).create_topic("orders", queues=1)
        await send(client, *numbered("orders", 6))
        for name in (*(f"a{number:02}" for number in range(24)), "zebras"):
            sim.broker.groups.put(SubscriptionGroupConfig(group_name=name))
        sim.broker.offsets.commit("zebras", "orders", 0, 2)
        before = (await visitor.get("/")).text
        await console.sampler.sample_names()
        await console.sampler.see_doctor()
        return before, (await visitor.get("/")).text

    with SimCluster(seed=1).run() as sim:
        before, after = as_visitor(sim, work)
    assert "has not finished a run" in before
    assert "group zebras" in after
    assert "20 of 25 groups, those with the most unread messages" in after
    assert "Nothing is wrong" not in after


def test_the_overview_lists_checks_that_the_doctor_could_not_make() -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> str:
        sim.host("broker-b").pause()
        await console.sampler.see_doctor()
        return (await visitor.get("/")).text

    with SimCluster(seed=1, brokers=2).run() as sim:
        text = as_visitor(sim, work)
    assert re.search(r"\d checks? not made .*broker-b : ", text)


def test_the_overview_shows_that_the_doctor_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(*_: Any, **__: Any) -> None:
        raise BrokerRefusal("10.0.0.3:10911", ResponseCode.SYSTEM_ERROR, "no memory")

    async def work(client: Client, console: Console, visitor: Visitor) -> str:
        with pytest.raises(BrokerRefusal):
            await console.sampler.see_doctor()
        return (await visitor.get("/")).text

    monkeypatch.setattr(Admin, "doctor", failing)
    with SimCluster(seed=1).run() as sim:
        assert "The doctor could not finish: 10.0.0.3:10911 answered 1" in as_visitor(sim, work)
