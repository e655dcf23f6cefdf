"""What a drain waits for: readers, delayed messages, retries, transactions."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from sparrowmq import (
    Admin,
    AdminError,
    BrokerDrain,
    Client,
    ConsumeFromWhere,
    DrainState,
    DrainUnfinished,
    HalfMessage,
    Message,
    MessageExt,
    MessageModel,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    TransactionalProducer,
    TransactionState,
)
from sparrowmq.protocol.headers.drain import BeginDrain
from sparrowmq.testing.sim_cluster import SimCluster
from tests.admin.draining import (
    TWO,
    A,
    on_a,
    perms,
    read_once,
    sim_call,
    state,
    stored,
    with_topic,
)
from tests.admin.operator import Read, as_client, as_operator, consuming


class Bookings:
    """Transactions whose end is known late."""

    def __init__(self) -> None:
        self._outcome = TransactionState.UNKNOWN

    async def execute(self, half: HalfMessage) -> TransactionState:
        return self._outcome

    async def check(self, message: MessageExt) -> TransactionState:
        return self._outcome

    async def decide(self) -> None:
        self._outcome = TransactionState.COMMIT


async def drained_while(
    admin: Admin, finish: Callable[[], Awaitable[object]], **options: object
) -> tuple[BrokerDrain, BrokerDrain]:
    """How the drain stands after 20 s, and at its end, which `finish` makes possible."""
    seen: list[BrokerDrain] = []
    draining = asyncio.create_task(
        admin.drain_broker(A, grace_s=0, progress=seen.append, **options)  # type: ignore[arg-type]
    )
    await asyncio.sleep(20)
    assert not draining.done(), "it did not wait"
    before = seen[-1]
    await finish()
    return before, await draining


@pytest.mark.parametrize("others_here", [(), ("audit",), ("audit", "caches")])
def test_a_drain_waits_for_a_group_that_reads_the_topic_only_on_another_broker(
    others_here: tuple[str, ...],
) -> None:
    """It was stopped while this broker was away: what came here since then is for it as well,
    whether or not other groups read the topic here."""
    with TWO.run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            b_only = MessageQueue("orders", "broker-b", 0)
            async with Producer("shop", client=client) as producer:
                for queue in await producer.queues("orders"):
                    await producer.send(Message("orders", b"x"), queue=queue)
            for group in others_here:
                async with consuming(client, group, "orders", 4):
                    pass
            async with PullConsumer("billing", client=client) as reader:
                reader.update_offset(b_only, 1)
                await reader.commit([b_only])
            dry = await admin.drain_broker(A, dry_run=True)
            assert [(each.group, each.topic, each.messages, each.why) for each in dry.unread] == [
                ("billing", "orders", 2, "no members")
            ]
            assert dry.unclaimed == {}
            with pytest.raises(DrainUnfinished) as caught:
                await admin.drain_broker(A, timeout_s=60)
            assert caught.value.drain.left == 2
            async with consuming(client, "billing", "orders", 0) as read:
                await read.until(3)
                assert (await admin.drain_broker(A)).state is DrainState.LEFT

        as_client(sim, work)


def test_members_elsewhere_that_broadcast_are_not_waited_for_after_they_have_gone() -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            await read_once(client, "billing")
            await on_a(client, 3)
            read = Read()
            async with PushConsumer(
                "caches", {"orders": "*"}, client=client, model=MessageModel.BROADCASTING
            ) as caches:
                await caches.start(read.handle)
                draining = asyncio.create_task(admin.drain_broker(A, grace_s=0))
                await asyncio.sleep(20)
            assert not draining.done()
            async with consuming(client, "billing", "orders", 3):
                assert (await draining).state is DrainState.LEFT

        as_client(sim, work)


def test_a_drain_waits_for_a_broker_that_does_not_report_its_readers() -> None:
    """A group may have read the topic there only."""
    with SimCluster(brokers=3).run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            await on_a(client, 2)
            async with consuming(client, "billing", "orders", 2):
                await asyncio.sleep(10)
            seen: list[BrokerDrain] = []
            sim.paths.partition([sim.host("operator")], [sim.brokers["broker-c"].host])
            draining = asyncio.create_task(admin.drain_broker(A, grace_s=0, progress=seen.append))
            await asyncio.sleep(60)
            assert not draining.done()
            assert seen[-1].unasked == ("broker-c",)
            sim.paths.heal()
            assert (await draining).state is DrainState.LEFT

        as_client(sim, work)


def test_connected_producers_may_send_until_they_have_polled_routes_again() -> None:
    """Of what Java and Go refuse to send elsewhere nothing is refused."""
    with TWO.run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            async with Producer("shop", client=client, retries=0) as producer:
                for _ in range(4):
                    await producer.send(Message("orders", b"connects"))
                await asyncio.sleep(2)
                await sim_call(sim, client, BeginDrain(grace_ms=35_000))
                report = await admin.drain_broker(A, dry_run=True)
                assert (report.state, report.refuses_sends) == (DrainState.DRAINING, False)
                for number in range(80):
                    await producer.send(Message("orders", b"%d" % number))
                    await asyncio.sleep(0.5)
                assert (await admin.drain_broker(A, dry_run=True)).refuses_sends

        as_client(sim, work)
        with_write = {name for name, is_open in perms(sim).items() if is_open}
        assert with_write == {"broker-b"}


def test_a_drain_without_producers_does_not_wait() -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> bool:
            admin = await with_topic(client)
            await sim_call(sim, client, BeginDrain(grace_ms=35_000))
            return (await admin.drain_broker(A, dry_run=True)).refuses_sends

        assert as_client(sim, work)


def test_a_group_that_has_not_read_everything_is_waited_for() -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            await read_once(client, "billing")
            await on_a(client, 6)

            async def read() -> None:
                async with consuming(client, "billing", "orders", 6):
                    await asyncio.sleep(10)

            before, after = await drained_while(admin, read)
            assert [
                (each.group, each.topic, each.messages, each.why) for each in before.unread
            ] == [("billing", "orders", 6, "no members")]
            assert after.state is DrainState.LEFT

        as_client(sim, work)


@pytest.mark.parametrize("how", ["level", "timer"])
def test_a_drain_waits_for_delayed_messages_and_shows_when_the_last_is_due(how: str) -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            more = {"delay_level": 5} if how == "level" else {"delay_ms": 60_000}
            begin = sim.clock()
            await on_a(client, 2, "orders", **more)
            async with consuming(client, "billing", "orders", 0) as read:
                before, after = await drained_while(admin, lambda: read.until(2))
                assert before.delayed == 2
                assert before.last_due is not None
                assert before.last_due.timestamp() == pytest.approx(begin / 1000 + 60, abs=2)
                assert after.state is DrainState.LEFT

        as_client(sim, work)


def test_retries_pass_and_are_waited_for() -> None:
    """A message that fails twice is delivered a third time, by the broker that drains."""
    with TWO.run() as sim:
        attempts: list[int] = []

        async def handle(messages: list[MessageExt]) -> None:
            attempts.append(messages[0].reconsume_times)
            if len(attempts) < 3:
                raise ValueError("not yet")

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            async with PushConsumer(
                "billing", {"orders": "*"}, client=client, from_where=ConsumeFromWhere.FIRST_OFFSET
            ) as consumer:
                await consumer.start(handle)  # type: ignore[arg-type]
                await on_a(client, 1)
                await asyncio.sleep(5)
                _, after = await drained_while(admin, lambda: asyncio.sleep(60))
                assert after.state is DrainState.LEFT

        as_client(sim, work)
        assert attempts == [0, 1, 2]


def test_half_messages_are_waited_for_and_their_commit_passes() -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            bookings = Bookings()
            async with TransactionalProducer("shop", bookings, client=client) as producer:
                sent = [
                    await producer.send_in_transaction(Message("orders", b"half")) for _ in range(4)
                ]
                assert {each.queue.broker_name for each in sent} == {A, "broker-b"}
                before, after = await drained_while(admin, bookings.decide)
                assert before.half == 2
                assert after.state is DrainState.LEFT

        as_client(sim, work)
        assert stored(sim) == 2


def test_groups_that_are_ignored_or_broadcast_are_not_waited_for() -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            await read_once(client, "reports")
            await on_a(client, 4)
            read = Read()
            async with PushConsumer(
                "caches", {"orders": "*"}, client=client, model=MessageModel.BROADCASTING
            ) as caches:
                await caches.start(read.handle)
                left = await admin.drain_broker(A, ignore_groups=["reports"])
            assert left.broadcasting == ("caches",)
            (unread,) = left.unread
            assert (unread.group, unread.messages, unread.why) == ("reports", 4, "ignored")

        as_client(sim, work)


def test_a_paused_group_is_shown_as_such_and_holds_the_drain_until_the_timeout() -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            async with consuming(client, "billing", "orders", 0):
                await admin.pause_group("billing")
                await on_a(client, 3)
                with pytest.raises(
                    DrainUnfinished, match="not drained after 30 s; broker-a stays"
                ) as e:
                    await admin.drain_broker(A, timeout_s=30, grace_s=0)
                (unread,) = e.value.drain.unread
                assert (unread.why, unread.messages, unread.members) == ("paused", 3, 1)

        as_client(sim, work)
        assert state(sim) is DrainState.DRAINING


def test_dead_letters_remain_only_if_the_operator_accepts_it() -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            await admin.create_topic("%DLQ%billing", queues=1)
            await on_a(client, 2, "%DLQ%billing")
            with pytest.raises(AdminError, match=r"dead letters would stay .*: 2 of group billing"):
                await admin.drain_broker(A)
            assert state(sim) is DrainState.SERVING
            assert (await admin.drain_broker(A, dry_run=True)).dead == {"billing": 2}
            assert (await admin.drain_broker(A, leave_dead_letters=True)).dead == {"billing": 2}

        as_client(sim, work)


def test_a_broker_that_has_just_started_waits_for_members_that_may_come_back() -> None:
    """A group that has committed nothing yet is known by its members alone."""
    with TWO.run() as sim:

        async def prepare(client: Client) -> None:
            await with_topic(client)
            await on_a(client, 2)
            await sim_call(sim, client, BeginDrain())

        as_client(sim, prepare)
        sim.brokers[A].restart()
        dry = as_operator(sim, lambda admin: admin.drain_broker(A, dry_run=True))
        assert (dry.is_settled, dry.is_finished) == (False, False)
        began_s = sim.now_s
        assert as_operator(sim, lambda admin: admin.drain_broker(A)).state is DrainState.LEFT
        assert 35 <= sim.now_s - began_s <= 45
