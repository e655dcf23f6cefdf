"""Calls to other servers: answered, timed out, or failed, and never left hanging."""

import asyncio

import pytest

from sparrowmq.net.calls import Response
from sparrowmq.net.errors import CallTimedOut, ConnectionLost, NetError
from sparrowmq.net.peers import Peers
from sparrowmq.net.routes import Reply, Request
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import HeaderError
from sparrowmq.protocol.header import ResponseHeader
from tests.net.calling import SERVER, calling, failure
from tests.net.world import Counted, Echo, Echoed, Keep, Wait, world


def test_a_call_gives_the_typed_answer() -> None:
    with world() as w:

        async def work(peers: Peers) -> Response:
            return await peers.call(SERVER, Echo(text='a "quoted" text'), b"body")

        response = calling(w, work)
        assert (response.code, response.body) == (ResponseCode.SUCCESS, b"body")
        assert response.header(Echoed).text == 'a "quoted" text'


def test_an_answer_without_an_expected_field_raises_an_error_that_names_it() -> None:
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
        w.sim.advance(100)
        w.sim.paths.set_latency(w.sim.host("client"), w.host, 0.8, 0.8)

        async def work(peers: Peers) -> tuple[NetError, float]:
            error = await failure(peers.call(SERVER, Wait(delay_ms=60_000), timeout_s=3))
            return error, asyncio.get_running_loop().time()

        error, ended_s = calling(w, work)
        assert isinstance(error, CallTimedOut)
        assert "within 3 s" in str(error)
        assert ended_s == pytest.approx(103, abs=0.01)


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
        w.sim.advance(70)  # their timeouts would expire now, which must have no effect


def test_a_one_way_call_is_sent_without_waiting() -> None:
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


def test_an_answer_without_a_call_is_dropped() -> None:
    with world() as w:

        async def work(peers: Peers) -> str:
            await peers.call(SERVER, Echo(text="hello"))
            (connection,) = w.server.connections
            asked = Echo(text="never asked")
            connection.write_reply(
                Request(asked, b"", 1_000_000, 0, "JAVA", 1, False, connection), Reply()
            )
            await asyncio.sleep(1)
            return (await peers.call(SERVER, Echo(text="fine"))).header(Echoed).text

        assert calling(w, work) == "fine"
