"""Operators empty brokers: nothing that was acknowledged is left behind, and nothing new comes."""

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
    NoRoute,
    NotFound,
    Producer,
    PullConsumer,
    PushConsumer,
    TransactionalProducer,
    TransactionState,
)
from sparrowmq.broker.monitoring.health import readiness
from sparrowmq.client.client import core_of
from sparrowmq.net.health import is_fine
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.drain import BeginDrain, EndDrain, LeaveCluster, LookAtDrain
from sparrowmq.protocol.perm import is_writable
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from sparrowmq.testing.wire import Refused
from tests.admin.operator import Read, as_client, as_operator, consuming, numbered, send
from tests.sim.replicated import follows

A = "broker-a"
TWO = SimCluster(brokers=2)


def perms(sim: RunningCluster, topic: str = "orders") -> dict[str, bool]:
    """Whether producers may send, by the brokers that clients find."""

    async def look(admin: Admin) -> dict[str, bool]:
        route = await admin.route(topic)
        return {each.broker_name: is_writable(each.perm) for each in route.queue_datas}

    return as_operator(sim, look)


def state(sim: RunningCluster, name: str = A) -> DrainState:
    return sim.brokers[name].broker.drain.state


def stored(sim: RunningCluster, name: str = A, topic: str = "orders") -> int:
    """Messages that a broker has of a topic."""
    broker = sim.brokers[name].broker
    return sum(broker.store.max_offset(topic, queue_id) for queue_id in range(8))


async def with_topic(client: Client) -> Admin:
    admin = Admin(client=client)
    await admin.create_topic("orders", queues=2)
    return admin


def test_a_broker_that_nobody_needs_leaves_and_comes_back() -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            dry = await admin.drain_broker(A, dry_run=True)
            assert (dry.state, dry.is_apache, dry.unread) == (DrainState.SERVING, False, ())
            seen: list[BrokerDrain] = []
            left = await admin.drain_broker(A, progress=seen.append)
            assert left.state is DrainState.LEFT
            assert [each.state for each in seen] == [DrainState.DRAINING]
            assert [each.name for each in await admin.brokers()] == ["broker-b"]
            assert await admin.drained_brokers() == {A: left.address}
            assert (await admin.drain_broker(A)).state is DrainState.LEFT  # again: nothing to do
            assert (await admin.resume_broker(A)).state is DrainState.LEFT
            assert [each.name for each in await admin.brokers()] == [A, "broker-b"]
            assert await admin.drained_brokers() == {}
            assert (await admin.resume_broker(A)).state is DrainState.SERVING

        as_client(sim, work)
        assert perms(sim) == {A: True, "broker-b": True}


def test_sends_and_reads_go_on_while_a_broker_is_emptied() -> None:
    """Every message is delivered once, and none of them is stored on the broker that drains."""
    with TWO.run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            async with consuming(client, "billing", "orders", 0) as read:
                await send(client, *numbered("orders", 40))
                async with Producer("shop", client=client) as producer:
                    draining = asyncio.create_task(admin.drain_broker(A, grace_s=0))
                    for number in range(200):
                        await producer.send(Message("orders", b"more %d" % number))
                        await asyncio.sleep(0.02)
                    left = await draining
                await read.until(240)
                assert left.state is DrainState.LEFT
                assert len({message.msg_id for message in read.messages}) == 240

        as_client(sim, work)
        assert stored(sim) <= 30


@pytest.mark.parametrize("others_here", [(), ("audit",), ("audit", "caches")])
def test_a_group_that_reads_the_topic_on_another_broker_only_is_waited_for(
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


def test_a_broker_that_does_not_say_who_reads_there_is_waited_for() -> None:
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


def test_keyed_sends_turn_to_another_broker_at_once() -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            async with Producer("shop", client=client) as producer:
                await producer.send(Message("orders", b"x", sharding_key="k0"))
                await sim_call(sim, client, BeginDrain())
                results = [
                    await producer.send(Message("orders", b"x", sharding_key=f"k{number}"))
                    for number in range(20)
                ]
            assert {each.queue.broker_name for each in results} == {"broker-b"}
            await admin.resume_broker(A)

        as_client(sim, work)


async def sim_call(
    sim: RunningCluster, client: Client, header: RequestHeader, name: str = A
) -> int:
    """The code of a broker's answer."""
    peers = core_of(client).peers
    response = await peers.call(sim.brokers[name].address, header, timeout_s=5.0)
    return response.code


def test_connected_producers_may_send_until_they_have_asked_for_routes_again() -> None:
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


def test_without_a_producer_nothing_is_waited_for() -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> bool:
            admin = await with_topic(client)
            await sim_call(sim, client, BeginDrain(grace_ms=35_000))
            return (await admin.drain_broker(A, dry_run=True)).refuses_sends

        assert as_client(sim, work)


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


# ---- what is waited for


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


async def on_a(client: Client, count: int, topic: str = "orders", **more: object) -> None:
    """Messages that are on the broker which is going to drain."""
    async with Producer("shop", client=client) as producer:
        queues = [each for each in await producer.queues(topic) if each.broker_name == A]
        for number in range(count):
            message = Message(topic, b"%d" % number, **more)  # type: ignore[arg-type]
            await producer.send(message, queue=queues[number % len(queues)])


async def read_once(client: Client, group: str) -> None:
    """A group that has read every queue and is offline now."""
    await send(client, *numbered("orders", 4))
    async with consuming(client, group, "orders", 4):
        await asyncio.sleep(10)


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
def test_delayed_messages_are_waited_for_and_it_says_when_the_last_is_due(how: str) -> None:
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


def test_dead_letters_stay_behind_only_where_the_operator_accepts_it() -> None:
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


# ---- remembered


@pytest.mark.slow
@pytest.mark.parametrize("reached", [DrainState.DRAINING, DrainState.LEFT])
@pytest.mark.parametrize("end", ["stop", "kill", "lose_power"])
def test_the_state_outlives_the_broker(
    reached: DrainState, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    with TWO.run() as sim:

        async def drain(client: Client) -> None:
            admin = await with_topic(client)
            if reached is DrainState.LEFT:
                await admin.drain_broker(A)
            else:
                await sim_call(sim, client, BeginDrain())

        async def try_to_send(client: Client) -> list[str]:
            async with Producer("shop", client=client) as producer:
                results = [await producer.send(Message("orders", b"x")) for _ in range(6)]
            return [each.queue.broker_name for each in results]

        as_client(sim, drain)
        node = sim.brokers[A]
        getattr(node, end)()
        node.start()
        sim.advance(40)  # registrations come and go
        said = [each.getMessage() for each in caplog.records]
        assert any("sparrowmq broker resume broker-a" in line and "drain" in line for line in said)
        assert state(sim) is reached
        shown = perms(sim)
        assert shown == {"broker-b": True} | ({A: False} if reached is DrainState.DRAINING else {})
        assert set(as_client(sim, try_to_send)) == {"broker-b"}
        as_operator(sim, lambda admin: admin.resume_broker(A))
        assert perms(sim) == {A: True, "broker-b": True}
        node.restart()
        sim.advance(40)
        assert perms(sim) == {A: True, "broker-b": True}


def test_a_name_server_that_was_restarted_hears_of_a_drained_broker_again() -> None:
    """It keeps its key-value configuration in memory."""
    with TWO.run() as sim:

        async def drain(client: Client) -> None:
            await (await with_topic(client)).drain_broker(A)

        async def look(admin: Admin) -> dict[str, str]:
            return await admin.drained_brokers()

        as_client(sim, drain)
        (node,) = sim.name_servers.values()
        node.restart()
        sim.advance(3)
        text = r"registered are: broker-b; .* sparrowmq broker resume broker-a --address HOST:PORT"
        with pytest.raises(NotFound, match=text):
            as_operator(sim, lambda admin: admin.resume_broker(A))
        sim.advance(30)
        assert as_operator(sim, look) == {A: sim.brokers[A].address}
        as_operator(sim, lambda admin: admin.resume_broker(A))
        assert as_operator(sim, look) == {}
        sim.advance(60)
        assert perms(sim) == {A: True, "broker-b": True}


def test_a_broker_that_is_killed_while_it_drains_is_waited_for() -> None:
    with TWO.run() as sim:
        seen: list[BrokerDrain] = []
        came_back = asyncio.Event()

        async def work(client: Client) -> BrokerDrain:
            admin = await with_topic(client)
            await read_once(client, "billing")
            await on_a(client, 4)
            draining = asyncio.create_task(admin.drain_broker(A, grace_s=0, progress=seen.append))
            await came_back.wait()
            async with consuming(client, "billing", "orders", 4):
                return await draining

        def kill_and_start() -> None:
            sim.until(lambda: len(seen) > 3)
            sim.brokers[A].kill()
            sim.until(lambda: bool(seen[-1].failure))
            sim.brokers[A].start()

        async def run() -> BrokerDrain:
            client = sim.client_on("operator")
            await client.start()
            try:
                return await work(client)
            finally:
                await client.stop()

        task = sim.host("operator").start(run(), name="operator")
        kill_and_start()
        came_back.set()
        assert sim.wait(task).state is DrainState.LEFT


# ---- refused


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"broker": "broker-z"}, NotFound, "broker broker-z does not exist; registered are: "),
        ({"ignore_groups": ["nobody"]}, NotFound, "group nobody does not exist"),
        ({"ignore_groups": "billing"}, ValueError, "ignore_groups is 'billing', must be a list"),
        ({"ignore_groups": ["a b"]}, ValueError, "group 'a b' has characters"),
        ({"grace_s": -1}, ValueError, "grace_s is -1, must be more than 0"),
        ({"grace_s": 3600}, AdminError, "graceMs is 3600000, allowed are 0 to 600000"),
        ({"timeout_s": 0}, ValueError, "timeout_s is 0, must be more than 0"),
    ],
)
def test_what_makes_no_sense_is_refused(
    options: dict[str, object], kind: type[Exception], text: str
) -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            with pytest.raises(kind, match=text):
                await admin.drain_broker(**{"broker": A, **options})  # type: ignore[arg-type]

        as_client(sim, work)
        assert state(sim) is DrainState.SERVING


def test_the_last_broker_of_a_topic_is_not_drained_until_the_topic_is_spread() -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            for topic in ("alone", "lonely"):
                await admin.create_topic(topic, queues=2, brokers=[A])
            await admin.create_topic("closed", queues=2, brokers=[A], perm=4)
            text = r"of these topics of broker-a: alone, lonely\. .*sparrowmq topic spread TOPIC"
            with pytest.raises(AdminError, match=text):
                await admin.drain_broker(A)
            assert state(sim) is DrainState.SERVING
            await admin.spread_topic("alone", ["broker-b"])
            await admin.delete_topic("lonely")
            assert (await admin.drain_broker(A)).state is DrainState.LEFT
            with pytest.raises(AdminError, match=r"topics of broker-b: alone, orders"):
                await admin.drain_broker("broker-b")

        as_client(sim, work)


def test_a_topic_whose_order_configuration_names_the_broker_is_named() -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            await admin.set_key_value("ORDER_TOPIC_CONFIG", "orders", "broker-a:2;broker-b:2")
            with pytest.raises(
                AdminError, match=r"the order configuration of orders sends keys to"
            ):
                await admin.drain_broker(A)
            await admin.set_key_value("ORDER_TOPIC_CONFIG", "orders", "broker-b:2")
            assert (await admin.drain_broker(A)).state is DrainState.LEFT

        as_client(sim, work)


def test_of_two_drains_that_begin_together_at_most_one_goes_on() -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> list[object]:
            admin = await with_topic(client)
            both = [admin.drain_broker(name) for name in (A, "broker-b")]
            return await asyncio.gather(*both, return_exceptions=True)

        ended = as_client(sim, work)
        assert any(isinstance(each, AdminError) for each in ended), ended
        assert True in perms(sim).values()


def test_two_operators_may_drain_the_same_broker() -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> list[BrokerDrain]:
            admin = await with_topic(client)
            return await asyncio.gather(*(admin.drain_broker(A) for _ in range(2)))

        assert {each.state for each in as_client(sim, work)} == {DrainState.LEFT}


def test_a_resume_ends_a_drain_that_is_under_way() -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            await read_once(client, "billing")
            await on_a(client, 1)
            draining = asyncio.create_task(admin.drain_broker(A, grace_s=0))
            await asyncio.sleep(5)
            await admin.resume_broker(A)
            with pytest.raises(AdminError, match="was taken back by a resume; it serves again"):
                await draining
            assert await admin.drained_brokers() == {}

        as_client(sim, work)
        assert perms(sim) == {A: True, "broker-b": True}


def test_without_name_servers_nothing_begins_and_a_drain_that_began_goes_on() -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            await read_once(client, "billing")
            await on_a(client, 1)
            draining = asyncio.create_task(admin.drain_broker(A, grace_s=0))
            await asyncio.sleep(5)
            others = [sim.host(name) for name in ("operator", A, "broker-b")]
            sim.paths.partition([sim.host("name-server-1")], others)
            with pytest.raises(AdminError, match="no name server answers"):
                await admin.drain_broker("broker-b")
            await asyncio.sleep(60)
            assert not draining.done()
            sim.paths.heal()
            async with consuming(client, "billing", "orders", 1):
                assert (await draining).state is DrainState.LEFT

        as_client(sim, work)


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (BeginDrain(grace_ms=-1), ResponseCode.INVALID_PARAMETER),
        (BeginDrain(grace_ms=600_001), ResponseCode.INVALID_PARAMETER),
        (LeaveCluster(log_end=0), ResponseCode.ILLEGAL_OPERATION),
        (EndDrain(), ResponseCode.SUCCESS),
        (LookAtDrain(), ResponseCode.SUCCESS),
    ],
)
def test_a_broker_that_serves_answers(header: RequestHeader, text: int) -> None:
    with TWO.run() as sim:
        assert as_client(sim, lambda client: sim_call(sim, client, header)) == text
        assert state(sim) is DrainState.SERVING


def test_a_broker_does_not_leave_when_something_was_stored_since() -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> list[int]:
            await with_topic(client)
            await sim_call(sim, client, BeginDrain())
            log_end = sim.brokers[A].broker.store.max_log_offset
            return [
                await sim_call(sim, client, LeaveCluster(log_end=log_end + 1)),
                await sim_call(sim, client, LeaveCluster(log_end=log_end)),
                await sim_call(sim, client, LeaveCluster(log_end=-1)),  # it has left before
            ]

        assert as_client(sim, work) == [
            ResponseCode.ILLEGAL_OPERATION,
            ResponseCode.SUCCESS,
            ResponseCode.SUCCESS,
        ]


def test_a_send_to_the_only_broker_that_drains_fails_and_says_why() -> None:
    with SimCluster().run() as sim:

        async def work(client: Client) -> None:
            await with_topic(client)
            async with Producer("shop", client=client, timeout_s=3) as producer:
                await producer.send(Message("orders", b"x"))
                await sim_call(sim, client, BeginDrain())
                with pytest.raises(NoRoute, match="no broker takes messages for it now"):
                    await producer.send(Message("orders", b"x"))

        as_client(sim, work)


# ---- replication


def test_a_slave_follows_the_drain_and_leaves_with_its_master() -> None:
    with SimCluster(brokers=2, slaves=1).run() as sim:
        sim.until(lambda: follows(sim))

        async def begin(client: Client) -> None:
            await with_topic(client)
            await sim_call(sim, client, BeginDrain())

        as_client(sim, begin)
        sim.until(lambda: state(sim, "broker-a.1") is DrainState.DRAINING)
        slave = as_client(sim, lambda client: sim_call(sim, client, EndDrain(), "broker-a.1"))
        assert slave == ResponseCode.SYSTEM_ERROR  # it takes this from its master
        as_operator(sim, lambda admin: admin.drain_broker(A))
        sim.until(lambda: state(sim, "broker-a.1") is DrainState.LEFT)
        sim.advance(5)
        assert A not in as_operator(sim, lambda admin: admin.cluster_info()).broker_addr_table
        as_operator(sim, lambda admin: admin.resume_broker(A))
        sim.until(lambda: state(sim, "broker-a.1") is DrainState.SERVING)
        sim.advance(5)
        data = as_operator(sim, lambda admin: admin.cluster_info()).broker_addr_table[A]
        assert set(data.broker_addrs) == {0, 1}


@pytest.mark.parametrize("how", ["hand over", "lose the master"])
def test_a_new_master_goes_on_draining(how: str) -> None:
    with SimCluster(brokers=2, slaves=1).run() as sim:
        sim.until(lambda: follows(sim))

        async def begin(client: Client) -> None:
            await with_topic(client)
            await sim_call(sim, client, BeginDrain())

        as_client(sim, begin)
        sim.until(lambda: state(sim, "broker-a.1") is DrainState.DRAINING)
        if how == "lose the master":
            sim.brokers[A].kill()
            follower = sim.brokers["broker-a.1"].broker.replication.follower
            assert follower is not None
            sim.until(lambda: not follower.master_address)
        as_operator(sim, lambda admin: admin.promote(A, accept_loss=A))
        assert state(sim, "broker-a.1") is DrainState.DRAINING
        assert perms(sim) == {A: False, "broker-b": True}
        ended = as_operator(sim, lambda admin: admin.drain_broker(A))
        assert (ended.state, ended.address) == (DrainState.LEFT, sim.brokers["broker-a.1"].address)
        as_operator(sim, lambda admin: admin.resume_broker(A))
        assert perms(sim) == {A: True, "broker-b": True}


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


def test_the_page_for_monitors_says_that_it_drains() -> None:
    """Ready as long as consumers need it."""
    with TWO.run() as sim:
        server = sim.brokers[A].server

        def page() -> tuple[bool, str]:
            checks = readiness(server.broker, server.registration)
            return is_fine(checks), "\n".join(map(str, checks))

        assert page()[0]
        as_client(sim, lambda client: sim_call(sim, client, BeginDrain()))
        is_ready, text = page()
        assert is_ready
        assert "ok  it drains: it takes no new messages" in text
        as_operator(sim, lambda admin: admin.drain_broker(A))
        is_ready, text = page()
        assert not is_ready
        assert ":9876: this broker is drained; resume it with: sparrowmq broker resume" in text


def test_drains_and_resumes_that_race_leave_one_clear_state() -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            for _ in range(10):
                calls = [admin.drain_broker(A, timeout_s=20), admin.resume_broker(A)]
                await asyncio.gather(*calls, return_exceptions=True)
            await admin.resume_broker(A)
            assert await admin.drained_brokers() == {}

        as_client(sim, work)
        assert state(sim) is DrainState.SERVING
        assert perms(sim) == {A: True, "broker-b": True}


@pytest.mark.parametrize("step_s", [-86_400, 86_400])
def test_a_clock_that_is_set_neither_ends_nor_holds_up_a_drain(step_s: int) -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            await on_a(client, 1, "orders", delay_level=4)
            begin_s = sim.now_s
            draining = asyncio.create_task(admin.drain_broker(A, grace_s=10))
            await asyncio.sleep(3)
            sim.brokers[A].broker.clock = lambda: sim.clock() + step_s * 1000
            async with consuming(client, "billing", "orders", 1):
                assert (await draining).state is DrainState.LEFT
            assert sim.now_s - begin_s >= 10

        as_client(sim, work)


@pytest.mark.parametrize(
    ("topic", "is_taken"),
    [("orders", False), ("%RETRY%billing", True), ("DefaultCluster_REPLY_TOPIC", True)],
)
def test_a_send_passes_only_where_it_ends_something(topic: str, is_taken: bool) -> None:
    with TWO.run() as sim:

        async def begin(client: Client) -> None:
            await with_topic(client)
            await sim_call(sim, client, BeginDrain())

        as_client(sim, begin)
        sending = sim.client.send(topic, b"x", address=sim.brokers[A].address)
        if is_taken:
            assert sim.wait(sending).queue_offset == 0
        else:
            with pytest.raises(Refused, match="drains and takes no new messages; send to another"):
                sim.wait(sending)
