"""Connections to other servers: shared, reopened, and failing for all waiting callers at once."""

import asyncio
import errno
import gc
import logging
import socket
import sys
from contextlib import suppress
from typing import Any

import pytest

from sparrowmq.net.errors import ConnectionLost, NetError, NotConnected, in_words
from sparrowmq.net.peers import Peers
from tests.net.calling import SERVER, calling, failure
from tests.net.world import Echo, Echoed, Keep, world


def test_callers_that_come_together_share_one_connection_attempt() -> None:
    with world() as w:

        async def work(peers: Peers) -> int:
            connections = await asyncio.gather(*(peers.connect(SERVER) for _ in range(20)))
            return len(set(map(id, connections)))

        assert calling(w, work) == 1
        w.sim.until_idle()
        assert len(w.closed) == 1


def test_a_refused_connection_fails_at_once_for_all_callers() -> None:
    with world() as w:

        async def work(peers: Peers) -> list[NetError]:
            calls = [failure(peers.call("server:1", Echo(text="a"))) for _ in range(3)]
            return list(await asyncio.gather(*calls))

        errors = calling(w, work)
        assert [type(error) for error in errors] == [NotConnected] * 3
        text = "cannot connect to server:1: connection refused, nothing listens there"
        assert [str(error) for error in errors] == [text] * 3
        assert w.sim.now_s < 1


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"),
            "connection refused, nothing listens there",
        ),
        (
            OSError("Multiple exceptions: [Errno 111] Connect … ('::1', 1), [Errno 111] Connect …"),
            "connection refused, nothing listens there",
        ),
        (
            OSError("Multiple exceptions: [Errno 111] Connect …, [Errno 113] Connect …"),
            "Multiple exceptions: [Errno 111] Connect …, [Errno 113] Connect …",
        ),
        (OSError(errno.EHOSTUNREACH, "x"), "that host cannot be reached from here"),
        (OSError(errno.EMFILE, "x"), "this process has too many open files (ulimit -n)"),
        (OSError(errno.EIO, "x"), "input/output error"),
        (
            socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
            "that host name is unknown",
        ),
        (socket.gaierror(socket.EAI_FAIL, "in words"), "in words"),
        (TimeoutError(), ""),
        (ValueError("label too long"), "label too long"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_causes_of_failed_connections_are_described_in_words(error: Exception, words: str) -> None:
    assert in_words(error) == words


def test_a_peer_that_does_not_speak_the_protocol_is_the_cause_and_no_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> NetError:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as web:
            address = f"127.0.0.1:{web.sockets[0].getsockname()[1]}"
            async with asyncio.TaskGroup() as tasks:
                peers = Peers(tasks, log=logging.getLogger("sparrowmq"))
                error = await failure(peers.call(address, Echo(text="a")))
                await peers.close()
        return error

    assert "lost: it does not speak RocketMQ's protocol (frame of " in str(asyncio.run(main()))
    assert not caplog.records


def test_a_call_that_cannot_connect_lets_go_of_its_body_at_once() -> None:
    """A broker without a name server makes such calls all the time, with megabytes in hand."""
    body = bytes(1_000)

    async def work(peers: Peers) -> list[int]:
        held = []
        for _ in range(3):
            # `failure` would not do: what pytest catches stays in a cycle, too.
            with suppress(NotConnected):
                await peers.call("server:1", Echo(text="a"), body)
            await asyncio.sleep(1)
            held.append(sys.getrefcount(body))
        return held

    with world() as w:
        gc.disable()
        try:
            held = calling(w, work)
        finally:
            gc.enable()
    assert held == [sys.getrefcount(body)] * 3


@pytest.mark.parametrize("host", ["a..b", f"{'x' * 64}.example"])
def test_a_name_that_no_resolver_takes_is_a_lost_connection(host: str) -> None:
    """A broker may be set to advertise one: that must not end its clients."""

    async def work() -> NetError:
        async with asyncio.TaskGroup() as tasks:
            peers = Peers(tasks, log=logging.getLogger("test"))
            return await failure(peers.call(f"{host}:10911", Echo(text="a")))

    assert isinstance(asyncio.run(work()), ConnectionLost)


def test_an_unreachable_host_fails_after_the_connect_timeout() -> None:
    with world() as w:
        w.sim.paths.partition([w.host], [w.sim.host("client")])

        async def work(peers: Peers) -> NetError:
            return await failure(peers.call(SERVER, Echo(text="a"), timeout_s=10))

        error = calling(w, work, connect_timeout_s=2)
        assert isinstance(error, ConnectionLost)
        assert "not connected within 2 s" in str(error)


def test_a_call_waits_for_a_connection_no_longer_than_its_own_timeout() -> None:
    with world() as w:
        w.sim.paths.partition([w.host], [w.sim.host("client")])

        async def work(peers: Peers) -> NetError:
            return await failure(peers.call(SERVER, Echo(text="a"), timeout_s=1))

        error = calling(w, work, connect_timeout_s=20)
        assert "not connected within 1 s" in str(error)
        assert w.sim.now_s < 2


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


def test_the_owner_learns_which_connection_was_lost() -> None:
    with world() as w:
        lost: list[str] = []

        async def work(peers: Peers) -> None:
            await peers.call(SERVER, Echo(text="a"))
            w.host.kill()
            await asyncio.sleep(1)

        calling(w, work, closed=lost.append)
        assert lost == [SERVER]


def test_closing_ends_attempts_and_calls_that_are_under_way_with_an_error() -> None:
    with world() as w:
        w.sim.paths.set_latency(w.sim.host("client"), w.host, 1, 1)

        async def work(peers: Peers) -> list[NetError]:
            waiting = asyncio.gather(*(failure(peers.call(SERVER, Keep())) for _ in range(2)))
            await asyncio.sleep(0.5)
            await peers.close()
            return list(await waiting)

        errors = calling(w, work)
        assert [type(error) for error in errors] == [NotConnected] * 2
        assert w.sim.now_s < 1


def test_closed_peers_open_no_connection_that_would_stay_open() -> None:
    """A caller that lost its connection by the closing tries again at once."""
    with world() as w:

        async def work(peers: Peers) -> tuple[NetError, list[str]]:
            await peers.call(SERVER, Echo(text="before"))
            again = asyncio.gather(_again(peers))
            await asyncio.sleep(0)
            await peers.close()
            (error,) = await again
            return error, peers.known()

        error, open_ones = calling(w, work)
        assert "this side is closing" in str(error)
        assert open_ones == []


async def _again(peers: Peers) -> NetError:
    await failure(peers.call(SERVER, Keep()))
    return await failure(peers.call(SERVER, Echo(text="again"), timeout_s=1))


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
            await peers.call(SERVER, Echo(text="a"), timeout_s=3)
        except NetError:
            await asyncio.sleep(10)
