"""Lag of groups, and moving them: to an offset, to a time, or to the progress of another group."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from sparrowmq import (
    Admin,
    AdminError,
    Client,
    Health,
    InUse,
    Message,
    MessageModel,
    MessageQueue,
    NotFound,
    OffsetMove,
    PartlyReset,
    Producer,
    PushConsumer,
    QueueLag,
)
from sparrowmq.admin import offsets
from sparrowmq.admin.cluster_calls import ClusterCalls
from sparrowmq.admin.errors import BrokerRefusal
from sparrowmq.admin.message_traces import GroupState
from sparrowmq.broker import runtime_info
from sparrowmq.client.client import core_of
from sparrowmq.net.calls import Response
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.connections import GetTopicsOfConsumer
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.admin.operator import Read, as_client, as_operator, consuming, numbered, send

FIRST = MessageQueue("orders", "broker-a", 0)


async def sold(client: Client, count: int, *, brokers: tuple[str, ...] = ()) -> Admin:
    """A topic with one queue per broker that a group has read all of."""
    admin = Admin(client=client)
    await admin.create_topic("orders", queues=1, brokers=brokers)
    await send(client, *numbered("orders", count))
    async with consuming(client, "billing", "orders", count):
        pass
    return admin


def test_lag_counts_unread_messages_per_queue_per_topic_and_in_total() -> None:
    async def work(client: Client) -> None:
        admin = await sold(client, 6)
        before = await admin.lag("billing")
        assert before.lag == 0
        await send(client, *numbered("orders", 4))
        lag = await admin.lag("billing")
        assert lag.lag == 4
        assert lag.by_topic["orders"] == 4
        assert lag.errors == ()
        assert [each.queue.broker_name for each in lag.queues if each.queue.topic == "orders"] == [
            "broker-a",
            "broker-b",
        ]
        for each in lag.queues:
            assert each.owner is None
            if each.queue.topic == "orders":
                assert each.lag == each.broker_offset - (each.consumer_offset or 0)
                assert each.last_consumed is not None

    with SimCluster(seed=1, brokers=2).run() as sim:
        as_client(sim, work)


def test_queues_on_a_broker_without_progress_count_as_unread_in_every_view() -> None:
    """The topic was added to another broker after its readers left: its queues there are unread."""
    elsewhere = MessageQueue("orders", "broker-b", 0)

    async def spread(client: Client) -> None:
        admin = await sold(client, 6, brokers=("broker-a",))
        await admin.create_topic("orders", queues=1, brokers=("broker-b",))

    async def look(client: Client) -> None:
        admin = Admin(client=client)
        async with Producer("shop", client=client) as producer:
            sent = await producer.send(Message("orders", b"x"), queue=elsewhere)
            for _ in range(2):
                await producer.send(Message("orders", b"x"), queue=elsewhere)
        for lag in (await admin.lag("billing"), await admin.lag("billing", "orders")):
            known = {each.queue: each.consumer_offset for each in lag.queues}
            assert (known[FIRST], known[elsewhere]) == (6, None)
            assert lag.by_topic["orders"] == 3
        (row,) = await admin.group_rows(["billing"])
        assert row.lag == 3
        (reader,) = await admin.topic_readers("orders")
        assert (reader.group, reader.lag) == ("billing", 3)
        checks = {each.check: each.state for each in await admin.health(max_lag=2)}
        assert checks["lag"] is Health.BAD
        (standing,) = (await admin.trace(sent.msg_id, "orders")).groups
        assert (standing.group, standing.state) == ("billing", GroupState.OFFLINE)

    with SimCluster(seed=1, brokers=2).run() as sim:
        as_client(sim, spread)
        as_client(sim, look)


@pytest.mark.parametrize("last", ["both", "one"])
def test_topics_of_any_member_count_whichever_heartbeat_came_last(last: str) -> None:
    """Brokers deliver by the latest heartbeat's subscriptions. What others wait for still waits."""
    with SimCluster(seed=1, brokers=2).run() as sim:

        async def work(client: Client) -> None:
            admin = await sold(client, 2)
            await admin.create_topic("payments", queues=1)
            await admin.reset_offsets(
                "billing", "payments", "earliest", queues=[MessageQueue("payments", "broker-a", 0)]
            )
            await send(client, *numbered("payments", 6), *numbered("orders", 2))
            await admin.pause_group("billing")
            topics = {"both": ["orders"], "one": ["orders", "payments"]}[last]
            others = {"both": ["orders", "payments"], "one": ["orders"]}[last]
            other = sim.client_on("other")
            await other.start()
            try:
                async with (
                    PushConsumer("billing", dict.fromkeys(topics, "*"), client=client) as first,
                    PushConsumer("billing", dict.fromkeys(others, "*"), client=other) as second,
                ):
                    await first.start(Read().handle)
                    await second.start(Read().handle)
                    await check(admin, client if last == "one" else other)
            finally:
                await other.stop()

        async def check(admin: Admin, reader: Client) -> None:
            for lag in (await admin.lag("billing"), *await admin.lags(["billing"])):
                assert lag.by_topic["payments"] == 6
            assert (await admin.lag("billing", "payments")).lag == 6
            (row,) = await admin.group_rows(["billing"])
            assert (row.lag, row.topics) == (8, ("orders", "payments"))
            (standing,) = await admin.topic_readers("payments")
            assert (standing.lag, standing.members) == (6, (reader.client_id,))
            (listed,) = await admin.clients(topic="payments")
            assert listed.client_id == reader.client_id
            found = (await admin.doctor("topic", "payments")).findings
            assert "unequal-subscriptions" in [each.id for each in found]
            explained = await admin.rebalance("billing")
            assert {each.queue.topic for each in explained.queues} == {"orders", "payments"}

        as_client(sim, work)


def test_a_topic_with_progress_counts_when_no_member_subscribes_to_it_any_more() -> None:
    with SimCluster(seed=1).run() as sim:

        async def work(client: Client) -> None:
            admin = await sold(client, 2)
            await admin.create_topic("payments", queues=1)
            await send(client, *numbered("orders", 3))
            async with consuming(client, "billing", "payments", 0):
                for lag in (await admin.lag("billing"), *await admin.lags(["billing"])):
                    assert lag.by_topic["orders"] == 3
                assert (await admin.lag("billing", "orders")).lag == 3
                (standing,) = await admin.topic_readers("orders")
                assert (standing.lag, standing.members) == (3, ())

        as_client(sim, work)


@pytest.mark.parametrize(
    ("model", "lag"), [(MessageModel.CLUSTERING, 4), (MessageModel.BROADCASTING, 0)]
)
def test_a_live_group_counts_before_it_has_progress_unless_it_broadcasts(
    model: MessageModel, lag: int
) -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1)
        await send(client, *numbered("orders", 4))
        await admin.create_group("billing", may_consume=False)
        consumer = PushConsumer("billing", {"orders": "*"}, client=client, model=model)
        async with consumer:
            await consumer.start(Read().handle)
            assert (await admin.lag("billing")).lag == lag

    with SimCluster(seed=1, brokers=2).run() as sim:
        as_client(sim, work)


def test_the_owner_of_a_queue_is_named_while_the_group_is_online() -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=2)
        await send(client, *numbered("orders", 2))
        async with consuming(client, "billing", "orders", 2):
            asked = await admin.lag("billing", "orders")
            spared = await admin.lag("billing", "orders", owners=False)
        assert {each.owner for each in asked.queues} == {client.client_id}
        assert {each.owner for each in spared.queues} == {None}

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_a_queue_without_progress_differs_from_one_at_the_first_message() -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=2)
        await admin.create_group("billing")
        await send(client, *numbered("orders", 8))
        await admin.reset_offsets("billing", "orders", {FIRST: 0})
        lag = await admin.lag("billing", "orders")
        assert [each.consumer_offset for each in lag.queues] == [0, None]
        assert lag.lag == 8

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


RANGES = [
    # consumer offset, lag, expired, past the end, of a queue that has 10 to 19
    (None, 10, False, False),
    (0, 10, True, False),
    (9, 10, True, False),
    (10, 10, False, False),
    (15, 5, False, False),
    (20, 0, False, False),
    (21, 0, False, True),
]


@pytest.mark.parametrize(("offset", "lag", "is_expired", "is_past_end"), RANGES)
def test_offsets_out_of_range_are_marked_and_only_messages_that_exist_count(
    offset: int | None, lag: int, is_expired: bool, is_past_end: bool
) -> None:
    queue = QueueLag(
        queue=FIRST,
        min_offset=10,
        broker_offset=20,
        consumer_offset=offset,
        last_consumed=None,
        owner=None,
    )
    assert (queue.lag, queue.is_expired, queue.is_past_end) == (lag, is_expired, is_past_end)
    assert queue.is_out_of_range == (is_expired or is_past_end)


def at(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


PLACES: list[tuple[Callable[[int], Any], int]] = [
    (lambda _: "earliest", 0),
    (lambda _: "latest", 10),
    (lambda _: {FIRST: 7}, 7),
    (lambda between_ms: between_ms, 6),
    (at, 6),
    (lambda _: 0, 0),
]


@pytest.mark.parametrize(("place", "expected"), PLACES)
def test_a_reset_moves_a_group_to_the_place_that_a_dry_run_shows(
    place: Callable[[int], Any], expected: int
) -> None:
    with SimCluster(seed=1).run() as sim:

        async def work(client: Client) -> None:
            admin = await sold(client, 6)
            between_ms = core_of(client).clock() + 1000
            await asyncio.sleep(2.0)
            await send(client, *numbered("orders", 4))
            moves = [OffsetMove(FIRST, 6, expected)]
            to = place(between_ms)
            assert await admin.reset_offsets("billing", "orders", to, dry_run=True) == moves
            assert (await admin.lag("billing", "orders")).queues[0].consumer_offset == 6
            assert await admin.reset_offsets("billing", "orders", to) == moves
            assert (await admin.lag("billing", "orders")).queues[0].consumer_offset == expected
            assert moves[0].skipped == max(0, expected - 6)
            assert moves[0].repeated == max(0, 6 - expected)

        as_client(sim, work)


def test_a_live_group_reads_again_what_a_reset_repeats() -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1)
        await send(client, *numbered("orders", 3))
        async with consuming(client, "billing", "orders", 3) as read:
            await admin.reset_offsets("billing", "orders", {FIRST: 1})
            await read.until(5)
        assert [each.queue_offset for each in read.messages] == [0, 1, 2, 1, 2]

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


WRONG: list[tuple[str, tuple[Any, ...], type[Exception], str]] = [
    ("reset_offsets", ("billing", "orders", {FIRST: 99}), AdminError, "offsets 0 to 2, not 99"),
    ("reset_offsets", ("billing", "orders", {}), ValueError, "names no queue"),
    ("reset_offsets", ("billing", "orders", "soon"), ValueError, "must be 'earliest', 'latest'"),
    ("reset_offsets", ("billing", "orders", -5), ValueError, "must be a datetime or millis"),
    ("reset_offsets", ("billing", "orders", datetime(2026, 1, 1)), ValueError, "no time zone"),  # noqa: DTZ001 - what is refused
    ("reset_offsets", ("billing", "orders", 10**14), ValueError, "`to` is 5138-.* in the future"),
    ("reset_offsets", ("nope", "orders", "latest"), NotFound, "group nope does not exist"),
    ("reset_offsets", ("billing", "nope", "latest"), NotFound, "topic nope does not exist"),
    (
        "reset_offsets",
        ("billing", "orders", {MessageQueue("orders", "broker-a", 9): 0}),
        NotFound,
        "queue broker-a/9 does not exist; .*: 1 on broker-a",
    ),
    (
        "reset_offsets",
        ("billing", "orders", {MessageQueue("other", "broker-a", 0): 0}),
        ValueError,
        "is not a queue of topic orders",
    ),
    ("clone_offsets", ("nope", "copy"), NotFound, "group nope does not exist"),
    ("clone_offsets", ("billing", "billing"), ValueError, "source and target are both billing"),
    ("lag", ("billing", "nope"), NotFound, "topic nope does not exist"),
    ("offset_at", (FIRST, -1), ValueError, "when is -1, must be a datetime or milliseconds"),
    ("offset_at", (MessageQueue("orders", "b", 0), 0), NotFound, "registered are: broker-a"),
]


@pytest.mark.parametrize(("method", "arguments", "kind", "text"), WRONG)
def test_an_invalid_call_is_refused_with_the_reason_and_moves_nothing(
    method: str, arguments: tuple[Any, ...], kind: type[Exception], text: str
) -> None:
    async def work(client: Client) -> None:
        admin = await sold(client, 2)
        before = (await admin.lag("billing")).queues
        with pytest.raises(kind, match=text):
            await getattr(admin, method)(*arguments)
        assert (await admin.lag("billing")).queues == before

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_a_reset_is_not_begun_while_a_broker_is_away() -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        as_client(sim, lambda client: sold(client, 6))
        before = as_operator(sim, lambda admin: admin.lag("billing")).queues
        sim.host("broker-b").pause()
        with pytest.raises(AdminError, match=r"nothing was changed, since not all.*broker-b"):
            as_operator(sim, lambda admin: admin.reset_offsets("billing", "orders", "earliest"))
        sim.host("broker-b").resume()
        assert as_operator(sim, lambda admin: admin.lag("billing")).queues == before


def test_a_reset_gives_the_group_to_a_broker_that_it_has_not_come_to_yet() -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:

        async def work(client: Client) -> None:
            admin = Admin(client=client)
            await admin.create_topic("orders", queues=1)
            await send(client, *numbered("orders", 6))
            await admin.create_group("billing", brokers=["broker-a"], retries=3)
            planned = await admin.reset_offsets("billing", "orders", "latest", dry_run=True)
            assert [each.broker for each in (await admin.group("billing")).settings] == ["broker-a"]
            assert await admin.reset_offsets("billing", "orders", "latest") == planned
            assert [move.queue.broker_name for move in planned] == ["broker-a", "broker-b"]
            settings = (await admin.group("billing")).settings
            assert [(each.broker, each.retries) for each in settings] == [
                ("broker-a", 3),
                ("broker-b", 3),
            ]
            assert (await admin.lag("billing", "orders")).lag == 0

        as_client(sim, work)


def test_a_partly_refused_reset_names_the_broker_and_the_moved_queues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:

        async def work(client: Client) -> None:
            admin = await sold(client, 6)
            await admin.delete_group("billing")
            await admin.create_group("billing", brokers=["broker-a"])
            # As if broker-b lost the group after the reset was planned
            monkeypatch.setattr(offsets, "groups_to_create", lambda *_: {})
            with pytest.raises(PartlyReset, match="SUBSCRIPTION_GROUP_NOT_EXIST") as raised:
                await admin.reset_offsets("billing", "orders", "latest")
            assert raised.value.done == ["broker-a"]
            assert list(raised.value.failed) == ["broker-b"]
            assert [move.queue.broker_name for move in raised.value.moves] == ["broker-a"]

        as_client(sim, work)


def make_old(sim: RunningCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers that do not say that they move single queues, as Apache's 4.9."""
    table = runtime_info.runtime_info

    def without(broker: Any) -> dict[str, str]:
        return {name: value for name, value in table(broker).items() if name != "waitingPulls"}

    monkeypatch.setattr("sparrowmq.broker.handlers.broker_admin.runtime_info", without)


def test_brokers_that_would_move_all_queues_are_only_reset_while_the_group_is_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with SimCluster(seed=1).run() as sim:
        make_old(sim, monkeypatch)

        async def work(client: Client) -> None:
            admin = await sold(client, 3)
            async with consuming(client, "billing", "orders", 0):
                with pytest.raises(InUse, match="broker-a cannot move single queues"):
                    await admin.reset_offsets("billing", "orders", {FIRST: 1})
            assert await admin.reset_offsets("billing", "orders", {FIRST: 1})
            assert (await admin.lag("billing", "orders")).queues[0].consumer_offset == 1

        as_client(sim, work)


def test_a_clone_copies_all_topics_on_brokers_that_cannot_list_those_of_a_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = ClusterCalls.call

    async def old(self: ClusterCalls, address: str, header: Any, body: bytes = b"") -> Response:
        if isinstance(header, GetTopicsOfConsumer):  # of release 4.9
            raise BrokerRefusal(address, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "")
        return await call(self, address, header, body)

    monkeypatch.setattr(ClusterCalls, "call", old)

    async def work(client: Client) -> None:
        admin = await sold(client, 6)
        assert (await admin.group("billing")).topics == ("orders",)
        copied = await admin.clone_offsets("billing", "billing-new")
        assert {move.queue.topic for move in copied} == {"orders"}
        assert (await admin.lag("billing-new")).lag == 0

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_a_clone_gives_a_group_the_progress_of_another() -> None:
    async def work(client: Client) -> None:
        admin = await sold(client, 6)
        await send(client, *numbered("orders", 2))
        await admin.reset_offsets("billing", "%RETRY%billing", "latest")  # progress of its own
        lag = await admin.lag("billing", "orders")
        source = {each.queue: each.consumer_offset for each in lag.queues}
        planned = await admin.clone_offsets("billing", "audit", dry_run=True)
        assert "audit" not in await admin.groups()
        assert await admin.clone_offsets("billing", "audit") == planned
        assert {move.queue: move.after for move in planned} == source
        target = await admin.lag("audit", "orders")
        assert target.lag == 2
        again = await admin.clone_offsets("billing", "audit", topic="orders")
        assert [move.before for move in again] == [move.after for move in again]

    with SimCluster(seed=1, brokers=2).run() as sim:
        as_client(sim, work)


@pytest.mark.parametrize("having", [(), ("broker-b",), ("broker-a", "broker-b")])
def test_a_clone_creates_its_group_on_brokers_that_lack_it(having: tuple[str, ...]) -> None:
    async def work(client: Client) -> None:
        admin = await sold(client, 6)
        await admin.update_group("billing", retries=3)
        if having:
            await admin.create_group("audit", retries=7, brokers=having)
        await admin.clone_offsets("billing", "audit")
        settings = {each.broker: each.retries for each in (await admin.group("audit")).settings}
        assert settings == {"broker-a": 3, "broker-b": 3} | dict.fromkeys(having, 7)
        assert (await admin.lag("audit", "orders")).lag == 0

    with SimCluster(seed=1, brokers=2).run() as sim:
        as_client(sim, work)


def test_a_clone_changes_nothing_while_a_broker_is_away() -> None:
    async def work(client: Client) -> None:
        admin = await sold(client, 6)
        await admin.create_group("audit", brokers=["broker-a"])
        sim.host("broker-b").pause()
        with pytest.raises(AdminError, match="nothing was changed, since not all brokers answer"):
            await admin.clone_offsets("billing", "audit")
        sim.host("broker-b").resume()
        assert [each.broker for each in (await admin.group("audit")).settings] == ["broker-a"]
        assert (await admin.group("audit")).topics == ()

    with SimCluster(seed=1, brokers=2).run() as sim:
        as_client(sim, work)


def test_a_clone_into_a_live_group_is_refused() -> None:
    async def work(client: Client) -> None:
        admin = await sold(client, 2)
        async with consuming(client, "audit", "orders", 2):
            with pytest.raises(InUse, match="they would commit their own progress over it"):
                await admin.clone_offsets("billing", "audit")

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)
