"""Calls to other servers: answered, timed out, or failed, and never left hanging."""

import asyncio
import logging
from typing import Any

import pytest

from sparrowmq.net.calls import Response
from sparrowmq.net.connection import Connection
from sparrowmq.net.errors import CallTimedOut, ConnectionLost, NetError
from sparrowmq.net.peers import Peers, split_address
from sparrowmq.net.reply import Reply, Request
from sparrowmq.net.routes import Routes
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import HeaderError
from sparrowmq.protocol.header import ResponseHeader
from tests.net.world import PORT, Calling, Counted, Echo, Echoed, Keep, Large, Wait, World, world

SERVER = f"server:{PORT}"


def calling(w: World, work: Any, **options: Any) -> Any:
    """Run `work(peers)` on the client's host."""

    async def run() -> Any:
        async with Calling(**options) as peers:
            return await work(peers)

    return w.run(run())


async def failure(waiting: Any) -> NetError:
    with pytest.raises(NetError) as caught:
        await waiting
    return caught.value


def test_a_call_gives_the_typed_answer() -> None:
    with world() as w:

        async def work(peers: Peers) -> Response:
            return await peers.call(SERVER, Echo(text='a "quoted" text'), b"body")

        response = calling(w, work)
        assert (response.code, response.body) == (ResponseCode.SUCCESS, b"body")
        assert response.header(Echoed).text == 'a "quoted" text'


def test_an_answer_without_the_expected_fields_says_which() -> None:
    with world() as w:

        async def work(peers: Peers) -> Response:
            return await peers.call(SERVER, Echo(text="a"))

        response = calling(w, work)
        with pytest.raises(HeaderError, match="Counted: Object missing required field `number`"):
            response.header(Counted)
        assert response.header(ResponseHeader) == ResponseHeader()


def test_many_calls_at_once_each_get_their_own_answer() -> None:
    with world() as w:

        async def work(peers: Peers) -> list[str]:
            async with asyncio.TaskGroup() as tasks:
                calls = [
                    tasks.create_task(peers.call(SERVER, Echo(text=str(number))))
                    for number in range(100)
                ]
            return [call.result().header(Echoed).text for call in calls]

        assert calling(w, work) == [str(number) for number in range(100)]
        w.sim.until_idle()
        assert len(w.closed) == 1


def test_callers_that_come_together_share_one_connection_attempt() -> None:
    with world() as w:

        async def work(peers: Peers) -> int:
            connections = await asyncio.gather(*(peers.connect(SERVER) for _ in range(20)))
            return len(set(map(id, connections)))

        assert calling(w, work) == 1
        w.sim.until_idle()
        assert len(w.closed) == 1


def test_a_call_that_is_not_answered_times_out_and_the_late_answer_is_dropped() -> None:
    with world() as w:

        async def work(peers: Peers) -> tuple[NetError, float, Response]:
            loop = asyncio.get_running_loop()
            await peers.connect(SERVER)
            began_s = loop.time()
            error = await failure(peers.call(SERVER, Wait(delay_ms=5000), timeout_s=3))
            took_s = loop.time() - began_s
            await asyncio.sleep(5)
            return error, took_s, await peers.call(SERVER, Echo(text="next"))

        error, took_s, after = calling(w, work)
        assert isinstance(error, CallTimedOut)
        assert str(error) == "server:9876 did not answer Wait within 3 s"
        assert took_s == pytest.approx(3)
        assert after.header(Echoed).text == "next"


def test_connecting_counts_towards_the_time_of_a_call() -> None:
    with world() as w:
        w.sim.paths.set_latency(w.sim.host("client"), w.host, 0.8, 0.8)

        async def work(peers: Peers) -> tuple[NetError, float]:
            error = await failure(peers.call(SERVER, Wait(delay_ms=60_000), timeout_s=3))
            return error, asyncio.get_running_loop().time()

        error, ended_s = calling(w, work)
        assert isinstance(error, CallTimedOut)
        assert "within 3 s" in str(error)
        assert ended_s == pytest.approx(3, abs=0.01)


def test_waiting_calls_fail_when_the_connection_is_lost() -> None:
    with world() as w:

        async def work(peers: Peers) -> list[NetError]:
            calls = [failure(peers.call(SERVER, Keep(), timeout_s=60)) for _ in range(3)]
            waiting = asyncio.gather(*calls)
            await asyncio.sleep(1)
            w.host.kill()
            return list(await waiting)

        errors = calling(w, work)
        assert [type(error) for error in errors] == [ConnectionLost] * 3
        assert w.sim.now_s < 2


def test_a_refused_connection_fails_at_once_for_everybody_who_waits() -> None:
    with world() as w:

        async def work(peers: Peers) -> list[NetError]:
            calls = [failure(peers.call("server:1", Echo(text="a"))) for _ in range(3)]
            return list(await asyncio.gather(*calls))

        errors = calling(w, work)
        assert [type(error) for error in errors] == [ConnectionLost] * 3
        assert "server:1" in str(errors[0])
        assert w.sim.now_s < 1


def test_an_unreachable_host_fails_after_the_connect_timeout() -> None:
    with world() as w:
        w.sim.paths.partition([w.host], [w.sim.host("client")])

        async def work(peers: Peers) -> NetError:
            return await failure(peers.call(SERVER, Echo(text="a"), timeout_s=10))

        error = calling(w, work, connect_timeout_s=2)
        assert isinstance(error, ConnectionLost)
        assert "not connected within 2 s" in str(error)


def test_a_lost_connection_is_opened_again_by_the_next_call() -> None:
    with world() as w:

        async def work(peers: Peers) -> tuple[list[str], list[str], str]:
            await peers.call(SERVER, Echo(text="a"))
            before = peers.known()
            w.sim.network.reset_connections(w.host)
            await asyncio.sleep(1)
            after = peers.known()
            response = await peers.call(SERVER, Echo(text="again"))
            return before, after, response.header(Echoed).text

        assert calling(w, work) == ([SERVER], [], "again")


def test_the_owner_is_told_which_connection_was_lost() -> None:
    with world() as w:
        lost: list[str] = []

        async def work(peers: Peers) -> None:
            await peers.call(SERVER, Echo(text="a"))
            w.host.kill()
            await asyncio.sleep(1)

        calling(w, work, closed=lost.append)
        assert lost == [SERVER]


def test_a_one_way_call_is_sent_and_waits_for_nothing() -> None:
    with world() as w:

        async def work(peers: Peers) -> NetError:
            await peers.send_oneway(SERVER, Echo(text="one-way"))
            await asyncio.sleep(1)
            return await failure(peers.send_oneway("server:1", Echo(text="nobody")))

        error = calling(w, work)
        assert [text.split()[1] for text in w.log.seen] == ["one-way"]
        assert isinstance(error, ConnectionLost)


def test_a_closed_connection_takes_no_calls() -> None:
    with world() as w:

        async def work(peers: Peers) -> None:
            connection = await peers.connect(SERVER)
            connection.close()
            with pytest.raises(ConnectionLost):
                connection.call(Echo(text="a"), timeout_s=1)
            with pytest.raises(ConnectionLost):
                connection.send_oneway(Echo(text="a"))

        calling(w, work)


def test_closing_ends_attempts_and_calls_that_are_under_way_with_an_error() -> None:
    with world() as w:
        w.sim.paths.set_latency(w.sim.host("client"), w.host, 1, 1)

        async def work(peers: Peers) -> list[NetError]:
            waiting = asyncio.gather(*(failure(peers.call(SERVER, Keep())) for _ in range(2)))
            await asyncio.sleep(0.5)
            await peers.close()
            return list(await waiting)

        errors = calling(w, work)
        assert [type(error) for error in errors] == [ConnectionLost] * 2
        assert w.sim.now_s < 1


def test_a_caller_that_gives_up_does_not_end_the_attempt_of_others() -> None:
    with world() as w:
        w.sim.paths.set_latency(w.sim.host("client"), w.host, 0.4, 0.4)

        async def work(peers: Peers) -> str:
            async with asyncio.TaskGroup() as tasks:
                impatient = tasks.create_task(peers.call(SERVER, Echo(text="a")))
                patient = tasks.create_task(peers.call(SERVER, Echo(text="b")))
                await asyncio.sleep(0.1)
                impatient.cancel()
            return patient.result().header(Echoed).text

        assert calling(w, work) == "b"


def test_the_other_side_may_call_back_over_the_same_connection() -> None:
    served: list[str] = []
    back: Routes[None] = Routes()

    @back.on(Echo)
    def called(_: None, request: Request[Echo]) -> Reply:
        served.append(request.header.text)
        return Reply(Echoed(text="from the client"))

    with world() as w:

        async def work(peers: Peers) -> Response:
            await peers.call(SERVER, Echo(text="hello"))
            (connection,) = w.server.connections
            assert isinstance(connection, Connection)
            return await connection.call(Echo(text="back"), timeout_s=1)

        response = calling(w, work, routes=back)
        assert served == ["back"]
        assert response.header(Echoed).text == "from the client"


def test_a_client_that_serves_nothing_says_so() -> None:
    with world() as w:

        async def work(peers: Peers) -> Response:
            await peers.call(SERVER, Echo(text="hello"))
            (connection,) = w.server.connections
            return await connection.call(Large(size_bytes=1), timeout_s=1)

        assert calling(w, work).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def test_an_answer_that_nobody_waits_for_is_dropped() -> None:
    with world() as w:

        async def work(peers: Peers) -> str:
            await peers.call(SERVER, Echo(text="hello"))
            (connection,) = w.server.connections
            connection._transport.write(  # a server that answers what was not asked
                b"\x00\x00\x00\x1f\x00\x00\x00\x1b" + b'{"flag":1,"opaque":1000000}'
            )
            await asyncio.sleep(1)
            return (await peers.call(SERVER, Echo(text="fine"))).header(Echoed).text

        assert calling(w, work) == "fine"


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:9876", ("127.0.0.1", 9876)),
        ("broker.example:10911", ("broker.example", 10911)),
        ("[::1]:9876", ("::1", 9876)),
    ],
)
def test_addresses_are_split(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize("address", ["", "host", ":1", "host:", "host:x", "host:70000", "host:-1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="not host:port"):
        split_address(address)


def test_an_address_that_is_none_fails_its_call_and_nothing_else() -> None:
    async def work(peers: Peers) -> None:
        error = await failure(peers.call("nowhere", Echo(text="x"), timeout_s=1))
        assert isinstance(error, ConnectionLost)
        assert "'nowhere' is not host:port" in str(error)
        assert (await peers.call(SERVER, Echo(text="x"), timeout_s=1)).code == 0

    with world() as w:
        calling(w, work)


def test_a_call_while_the_owner_shuts_down_fails_like_a_lost_connection() -> None:
    async def work() -> None:
        late: list[NetError] = []

        async def at_the_end(peers: Peers) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                late.append(await failure(peers.call(SERVER, Echo(text="x"), timeout_s=1)))

        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as tasks:
                peers = Peers(tasks, log=logging.getLogger("test"))
                tasks.create_task(at_the_end(peers))
                await asyncio.sleep(0)
                raise LookupError
        assert "this side is closing" in str(late[0])

    with world() as w:
        w.run(work())


@pytest.mark.parametrize("attempt_first", [True, False])
def test_a_caller_that_is_cancelled_with_the_attempt_it_waits_for_ends(attempt_first: bool) -> None:
    """As when the group that owns both is left, which cancels them in any order."""
    with world() as w:
        w.sim.host("server").pause()

        async def cancel_both() -> asyncio.Task[Any]:
            async with asyncio.TaskGroup() as tasks:
                peers = Peers(tasks, log=logging.getLogger("test"))
                caller = tasks.create_task(_forever(peers))
                before = asyncio.all_tasks()
                await asyncio.sleep(0.001)
                both = [*(asyncio.all_tasks() - before), caller]
                assert len(both) == 2
                for task in both if attempt_first else reversed(both):
                    task.cancel()
                await asyncio.wait(both, timeout=60)
                return caller

        assert w.sim.run(cancel_both(), on=w.sim.host("caller")).cancelled()


async def _forever(peers: Peers) -> None:
    """What a loop that keeps something fresh does."""
    while True:
        try:
            await peers.call(f"server:{PORT}", Echo(text="a"), timeout_s=3)
        except NetError:
            await asyncio.sleep(10)
