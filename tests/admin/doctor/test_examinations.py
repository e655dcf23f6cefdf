"""The doctor's round as a whole: healthy clusters, partial answers, wrong arguments."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sparrowmq import Client, Examination, NotFound, Severity
from sparrowmq.admin import groups, topics
from sparrowmq.admin.cluster_calls import MOST_AT_ONCE, ClusterCalls
from sparrowmq.admin.doctor.findings import Decided, examination, found
from sparrowmq.admin.errors import BrokerRefusal
from sparrowmq.client.client import core_of
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.offsets_body import TopicStats
from sparrowmq.testing.sim_cluster import SimCluster
from tests.admin.doctor.provocations import Scene, fail, of, succeed, wait_for_ever
from tests.admin.operator import as_client


def in_cluster(scene: Callable[[Scene], Awaitable[None]], **cluster: Any) -> None:
    with SimCluster(seed=1, **cluster).run() as sim:
        as_client(sim, lambda client: scene(Scene(sim, client)))


def ids(examined: Examination) -> list[str]:
    return [each.id for each in examined.findings]


def test_a_healthy_cluster_has_no_findings_and_lists_the_checks() -> None:
    async def work(scene: Scene) -> None:
        await scene.topic(queues=4)
        async with scene.member(succeed):
            await scene.send(40)
            await asyncio.sleep(20)
            examined = await scene.doctor()
            group = await scene.doctor("group", "billing")
        assert (ids(examined), examined.not_made, examined.errors) == ([], (), ())
        assert examined.is_healthy and examined.worst is None
        assert examined.checked == "checked 1 name server and 2 brokers, 1 topic and 1 group"
        assert group.checked.startswith("checked group billing with 1 live member and ")
        assert group.checked.endswith("twice in 2.0 s")

    in_cluster(work, brokers=2)


def test_a_busy_group_that_keeps_up_has_no_findings() -> None:
    """Members commit every 5 s, so that brokers see no progress between two looks."""

    async def work(scene: Scene) -> None:
        await scene.topic()

        async def keep_sending() -> None:
            for _ in range(50):
                await scene.send(10)
                await asyncio.sleep(0.1)

        async with scene.member(succeed), asyncio.TaskGroup() as tasks:
            tasks.create_task(keep_sending())
            await asyncio.sleep(1)
            assert ids(await scene.doctor("group", "billing")) == []

    in_cluster(work)


def test_everything_is_examined_with_the_worst_first() -> None:
    async def work(scene: Scene) -> None:
        await scene.topic(messages=3)
        await scene.admin.create_topic("unread", queues=1)
        async with scene.member(fail):
            await asyncio.sleep(1)
        await scene.send(3)
        examined = await scene.doctor()
        assert ids(examined) == ["no-members", "nobody-consumes"]
        assert examined.worst is Severity.ERROR
        assert [each.id for each in examined.at_least(Severity.ERROR)] == ["no-members"]

    in_cluster(work)


def test_a_limit_examines_some_topics_and_groups_and_reports_how_many() -> None:
    async def work(scene: Scene) -> None:
        for number in range(3):
            await scene.admin.create_topic(f"t{number}", queues=1)
            await scene.admin.create_group(f"g{number}")
        some = await scene.doctor(limit=2)
        assert some.checked.endswith(
            "2 of 3 topics (--limit 0 for all) and 2 of 3 groups (--limit 0 for all)"
        )
        assert (await scene.doctor(limit=0)).checked.endswith("3 topics and 3 groups")

    in_cluster(work)


PARTLY: list[tuple[str, ...]] = [("cluster",), ("topic", "orders"), ("group", "billing"), ()]


@pytest.mark.parametrize("about", PARTLY)
def test_a_broker_that_does_not_answer_is_one_finding_among_the_others(
    about: tuple[str, ...],
) -> None:
    async def work(scene: Scene) -> None:
        await scene.topic(queues=2, messages=4)
        async with scene.member(succeed):
            await asyncio.sleep(6)
        scene.sim.host("broker-b").pause()
        examined = await scene.doctor(*about)
        silent = of(examined, "broker-silent")
        assert silent.subject == "broker broker-b"
        assert {each.broker for each in examined.errors} == {"broker-b"}

    in_cluster(work, brokers=2)


REFUSED: list[tuple[str, ...]] = [("topic", "orders"), ()]


@pytest.mark.parametrize("about", REFUSED)
def test_a_broker_that_answers_with_a_code_is_not_silent(
    about: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = topics.topic_stats
    refusing: set[str] = set()

    async def stats(calls: ClusterCalls, address: str, topic: str) -> TopicStats:
        if address in refusing:
            raise BrokerRefusal(address, ResponseCode.NO_PERMISSION, f"{topic} is locked")
        return await answered(calls, address, topic)

    async def work(scene: Scene) -> None:
        await scene.topic(queues=2, messages=4)
        async with scene.member(succeed):
            await asyncio.sleep(6)
            refusing.update(e.address for e in await scene.admin.brokers() if e.name == "broker-b")
            for module in (topics, groups):
                monkeypatch.setattr(module, "topic_stats", stats, raising=False)
            examined = await scene.doctor(*about)
        assert "broker-silent" not in ids(examined)
        reasons = " ".join(each.reason for each in examined.not_made)
        assert "answered 16 (NO_PERMISSION): orders is locked" in reasons

    in_cluster(work, brokers=2)


SILENT = [
    found("broker-silent", "broker broker-b", evidence, "sparrowmq broker show broker-b")
    for evidence in ("b:1: no answer within 3 s", "b:1: the connection was closed")
]


def test_a_silent_broker_is_listed_once_for_any_number_of_requests() -> None:
    examined = examination([Decided([each]) for each in SILENT], "checked")
    assert examined.findings == tuple(SILENT[:1])


@pytest.mark.parametrize("about", PARTLY)
def test_an_unreachable_name_server_is_the_only_finding_and_ends_the_checks(
    about: tuple[str, ...],
) -> None:
    async def work(scene: Scene) -> None:
        scene.sim.host("name-server-1").power_off()
        examined = await scene.doctor(*about)
        assert ids(examined) == ["nameserver-silent"]
        if about != ("cluster",):
            (rest,) = examined.not_made
            assert "no-members" in rest.ids and rest.reason == "no name server answers"

    in_cluster(work)


def test_a_message_can_be_examined_by_queue_and_offset_too() -> None:
    async def work(scene: Scene) -> None:
        await scene.topic()
        (sent,) = await scene.send(1)
        place = (await scene.admin.message(sent, "orders")).offset_msg_id
        async with scene.member(succeed):
            await asyncio.sleep(6)
            examined = await scene.doctor("message", place)
        assert ids(examined) == ["consumed-by"]
        with pytest.raises(NotFound, match="give its topic"):
            await scene.doctor("message", sent)

    in_cluster(work)


def test_a_retried_message_is_followed_until_its_group_is_done_with_it() -> None:
    """Failed once, waiting for its delay; back in the retry topic and handled."""

    async def work(scene: Scene) -> None:
        await scene.topic()
        (sent,) = await scene.send(1)
        failures = 0

        async def handle(messages: object) -> None:
            nonlocal failures
            failures += 1
            if failures == 1:
                raise ValueError("once")

        async with scene.member(handle):
            await asyncio.sleep(6)
            waiting = of(await scene.doctor("message", sent, topic="orders"), "retrying")
            assert waiting.evidence.startswith("attempt 1 failed, next 20")
            await asyncio.sleep(20)
            assert ids(await scene.doctor("message", sent, topic="orders")) == ["consumed-by"]

    in_cluster(work)


WRONG: list[tuple[tuple[str, ...], dict[str, Any], type[Exception], str]] = [
    (("queue", "x"), {}, ValueError, "about is 'queue', must be one of cluster, topic, group"),
    (("topic",), {}, ValueError, "which topic"),
    (("group", "a b"), {}, ValueError, "characters that are not allowed"),
    (("topic", "a b"), {}, ValueError, "characters that are not allowed"),
    (("group", "nope"), {}, NotFound, "group nope does not exist"),
    (("cluster", "nope"), {}, NotFound, "cluster nope does not exist; known are: DefaultCluster"),
    (("message", "zz"), {"topic": "orders"}, ValueError, "is not 32 or 56 hexadecimal digits"),
    (("topic", "t"), {"topic": "t"}, ValueError, "topic says where a message is"),
    ((), {"for_s": -1.0}, ValueError, "for_s is -1.0, must be 0 or more"),
    ((), {"limit": -1}, ValueError, "limit is -1, must be 0"),
]


@pytest.mark.parametrize(("about", "more", "error", "text"), WRONG)
def test_wrong_arguments_are_refused(
    about: tuple[str, ...], more: dict[str, Any], error: type[Exception], text: str
) -> None:
    async def work(scene: Scene) -> None:
        with pytest.raises(error, match=text):
            await scene.doctor(*about, **more)

    in_cluster(work)


def test_at_most_eight_requests_are_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(scene: Scene) -> None:
        for number in range(12):
            await scene.admin.create_topic(f"t{number}", queues=1)
            await scene.admin.create_group(f"g{number}")
        peers = core_of(scene.client).peers
        call, running, most = peers.call, 0, 0

        async def counted(*args: Any, **more: Any) -> Any:
            nonlocal running, most
            running += 1
            most = max(most, running)
            try:
                return await call(*args, **more)
            finally:
                running -= 1

        monkeypatch.setattr(peers, "call", counted)
        await scene.doctor()
        assert most == MOST_AT_ONCE

    in_cluster(work, brokers=2)


def test_a_hanging_handler_is_shown_with_its_line() -> None:
    async def work(scene: Scene) -> None:
        await scene.topic(messages=2)
        async with scene.member(wait_for_ever):
            await asyncio.sleep(90)
            examined = await scene.doctor("group", "billing")
        assert ids(examined) == ["handler-hangs"]
        assert "wait_for_ever" in examined.findings[0].cause
        assert "at most" not in examined.findings[0].evidence

    in_cluster(work)


def test_an_examination_changes_nothing() -> None:
    async def work(scene: Scene) -> None:
        await scene.topic(messages=3)
        async with scene.member(succeed):
            await asyncio.sleep(6)
        before = await state(scene.client, scene)
        await scene.doctor()
        await scene.doctor("topic", "unknown")
        assert await state(scene.client, scene) == before

    async def state(client: Client, scene: Scene) -> list[Any]:
        admin = scene.admin
        lag = (await admin.lag("billing")).queues
        return [await admin.topics(), (await admin.groups()).items, lag]

    in_cluster(work)
