"""Messages by time, tailed, traced, and handed to a member."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from sparrowmq import (
    Admin,
    AdminError,
    Client,
    Message,
    MessageExt,
    MessageQueue,
    NotFound,
    Producer,
    PushConsumer,
)
from sparrowmq.net.calls import Response
from sparrowmq.net.peers import Peers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.offsets import QueryConsumerOffset
from sparrowmq.protocol.trace import parse_trace
from sparrowmq.testing.sim_cluster import SimCluster
from tests.admin.operator import Read, as_client, consuming, numbered, send

FIRST = MessageQueue("orders", "broker-a", 0)


async def one_a_minute(client: Client, count: int) -> tuple[Admin, list[int]]:
    """A message a minute; the times at which they were stored."""
    admin = Admin(client=client)
    await admin.create_topic("orders", queues=2)
    times = []
    for message in numbered("orders", count):
        await asyncio.sleep(60)
        (sent,) = await send(client, message)
        stored = await admin.read_message(sent.queue, sent.queue_offset)
        times.append(stored.store_timestamp)
    return admin, times


@pytest.mark.slow
@pytest.mark.parametrize(
    ("since", "until", "newest", "limit", "bodies", "total"),
    [
        (None, None, False, 20, b"01234", 5),
        (1, 4, False, 20, b"123", 3),
        (1, None, False, 2, b"12", 4),
        (None, 4, True, 2, b"23", 4),
        (4, 5, False, 20, b"4", 1),
    ],
)
def test_messages_of_a_time_range_come_by_time(
    since: int | None, until: int | None, newest: bool, limit: int, bodies: bytes, total: int
) -> None:
    async def work(client: Client) -> None:
        admin, times = await one_a_minute(client, 5)
        times.append(times[-1] + 1)
        found = await admin.messages_between(
            "orders",
            since=None if since is None else times[since],
            until=None if until is None else times[until],
            newest=newest,
            limit=limit,
        )
        assert b"".join(each.body for each in found.messages) == bodies
        assert (found.total, found.is_cut) == (total, total > len(bodies))

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_a_topic_is_followed_without_a_group() -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1)
        await send(client, *numbered("orders", 2))
        seen: list[bytes] = []

        def take(message: MessageExt) -> bool:
            seen.append(message.body)
            return len(seen) < 2

        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(admin.tail("orders", take, expression="paid"))
            await asyncio.sleep(1)
            for tag in ("paid", "open", "paid"):
                await send(client, Message("orders", tag.encode(), tags=tag))
            await following
        assert seen == [b"paid", b"paid"]
        seen.clear()
        await admin.tail("orders", take, queue=FIRST, since=0)
        assert seen == [b"0", b"1"]
        assert (await admin.group("TOOLS_CONSUMER")).topics == ()

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_a_trace_joins_what_clients_reported_with_where_groups_are() -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1)
        async with Producer("shop", client=client, trace=True) as producer:
            sent = await producer.send(Message("orders", b"x", tags="open", keys="o-1"))
        async with (
            consuming(client, "audit", "orders", 1),
            PushConsumer("billing", {"orders": "paid"}, client=client) as filtered,
        ):
            await filtered.start(Read().handle)
            await asyncio.sleep(60)
            await admin.create_group("late")
            await admin.reset_offsets("late", "orders", "earliest")
            found = await admin.trace(sent.msg_id)
        assert found.message is not None
        (step,) = found.steps
        assert (step.kind, step.group, step.topic, step.is_ok) == ("Pub", "shop", "orders", True)
        states = {each.group: (each.state and each.state.value) for each in found.groups}
        assert states == {"audit": "consumed", "billing": "filtered", "late": "offline"}
        assert {each.source for each in found.groups} == {"offsets"}
        with pytest.raises(NotFound, match="no client traced it, and"):
            await admin.trace("0" * 32)

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_a_group_without_reported_progress_is_listed_without_a_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = Peers.call

    async def refused(peers: Peers, to: str, header: RequestHeader, *args: Any, **more: Any) -> Any:
        if isinstance(header, QueryConsumerOffset):
            return Response(ResponseCode.SYSTEM_ERROR, "its disk is away", None, b"")
        return await call(peers, to, header, *args, **more)

    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1)
        (sent,) = await send(client, *numbered("orders", 1))
        async with consuming(client, "audit", "orders", 1):
            pass
        with monkeypatch.context() as patch:
            patch.setattr(Peers, "call", refused)
            found = await admin.trace(sent.msg_id, "orders")
        assert [(each.group, each.state) for each in found.groups] == [("audit", None)]
        (error,) = found.errors
        assert (error.broker, error.is_refusal) == ("group audit", True)
        assert "its disk is away" in error.reason

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_lines_of_javas_and_gos_clients_are_read() -> None:
    """As TraceDataEncoder writes them, in old and new lengths."""
    lines = [
        "Pub 17 R shop orders ID tag keys 1.1.1.1:1 3 5 0 true",
        "Pub 18 R shop orders ID tag keys 1.1.1.1:1 3 5 0 OFF false 2.2.2.2",
        "SubBefore 19 R billing REQ ID 2 keys",
        "SubAfter REQ ID 7 true keys 0 20 billing",
        "SubAfter REQ ID 7 false keys 2",
        "EndTransaction 21 R shop orders ID tag keys 1.1.1.1:1 2 TX COMMIT_MESSAGE false",
        "Recall 22 R shop orders ID true",
        "Later 1 2 3",
        "Pub x",
    ]
    steps = parse_trace("\x02".join(each.replace(" ", "\x01") for each in lines))
    assert [each.kind for each in steps] == [
        *("Pub", "Pub", "SubBefore", "SubAfter", "SubAfter", "EndTransaction", "Recall")
    ]
    assert [each.is_ok for each in steps] == [True, False, None, True, False, None, True]
    assert {each.msg_id for each in steps} == {"ID"}
    assert (steps[1].offset_msg_id, steps[1].client) == ("OFF", "2.2.2.2")
    assert (steps[3].group, steps[3].took_ms, steps[4].state) == ("billing", 7, "failed")
    assert steps[5].state == "COMMIT_MESSAGE"


def test_a_message_is_handed_to_a_member_which_reports_the_outcome() -> None:
    async def fail(messages: Sequence[MessageExt]) -> None:
        raise ValueError("no")

    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1)
        (sent,) = await send(client, *numbered("orders", 1))
        with pytest.raises(AdminError, match="group billing has no live member"):
            await admin.deliver(sent.msg_id, "billing", topic="orders")
        async with consuming(client, "billing", "orders", 1) as read:
            done = await admin.deliver(sent.msg_id, "billing", topic="orders")
            assert (done.result, done.is_ok, done.client_id) == ("consumed", True, client.client_id)
            assert len(read.messages) == 2
            with pytest.raises(NotFound, match="member nope does not exist; live members"):
                await admin.deliver(sent.msg_id, "billing", topic="orders", client_id="nope")
        async with PushConsumer("audit", {"orders": "*"}, client=client) as consumer:
            await consumer.start(fail)
            failed = await admin.deliver(sent.msg_id, "audit", topic="orders")
        assert (failed.result, failed.is_ok) == ("failed", False)

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)
