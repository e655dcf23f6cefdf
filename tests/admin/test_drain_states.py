"""The state of a drain outlives restarts, changes of roles, races and clock steps."""

import asyncio

import pytest

from sparrowmq import (
    Admin,
    AdminError,
    BrokerDrain,
    Client,
    DrainState,
    Message,
    NotFound,
    Producer,
)
from sparrowmq.broker.monitoring.health import readiness
from sparrowmq.net.health import is_fine
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.drain import BeginDrain, EndDrain, LeaveCluster, LookAtDrain
from sparrowmq.testing.sim_cluster import SimCluster
from tests.admin.draining import TWO, A, on_a, perms, read_once, sim_call, state, with_topic
from tests.admin.operator import as_client, as_operator, consuming
from tests.sim.replicated import follows


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


def test_of_two_drains_that_start_together_at_most_one_continues() -> None:
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
def test_a_new_master_continues_the_drain(how: str) -> None:
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


def test_the_readiness_page_shows_the_drain() -> None:
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
