"""What a connection knows of its peer, and what holds once the peer has gone."""

import asyncio

import pytest

from sparrowmq.net.connection import Connection
from sparrowmq.net.errors import ConnectionLost, NetError
from sparrowmq.net.peers import Peers
from sparrowmq.net.reply import Reply
from sparrowmq.protocol.hosts import encode_host
from tests.net.calling import SERVER, calling, failure
from tests.net.wire import Wire, request
from tests.net.world import PORT, Echo, Keep, Large, World, world

ECHO, KEEP, LARGE = (int(kind.CODE) for kind in (Echo, Keep, Large))


def test_a_connection_whose_peer_has_gone_takes_no_calls() -> None:
    with world() as w:

        async def work(peers: Peers) -> Connection:
            connection = await peers.connect(SERVER)
            w.sim.network.reset_connections(w.host)
            await asyncio.sleep(1)
            with pytest.raises(ConnectionLost, match=SERVER):
                connection.call(Echo(text="a"), timeout_s=1)
            with pytest.raises(ConnectionLost, match=SERVER):
                connection.send_oneway(Echo(text="a"))
            return connection

        assert not calling(w, work).is_open


@pytest.mark.parametrize(
    ("is_reset", "says"), [(False, "closed"), (True, "Connection reset by peer")]
)
def test_a_lost_call_says_to_whom_and_how_the_connection_ended(is_reset: bool, says: str) -> None:
    with world() as w:

        async def work(peers: Peers) -> NetError:
            waiting = asyncio.gather(failure(peers.call(SERVER, Keep(), timeout_s=60)))
            await asyncio.sleep(1)
            if is_reset:
                w.sim.network.reset_connections(w.host)
            else:
                next(iter(w.server.connections)).close()
            (error,) = await waiting
            return error

        error = calling(w, work)
        assert SERVER in str(error)
        assert says in str(error)


def one_wire(w: World) -> tuple[Wire, Connection]:
    wire = w.run(Wire.open("server", PORT))
    w.sim.until_idle()
    (connection,) = w.server.connections
    return wire, connection


def test_a_handler_knows_the_address_of_its_peer_in_every_form() -> None:
    with world() as w:
        wire, connection = one_wire(w)
        host, port = wire.writer.get_extra_info("sockname")
        assert (connection.peer_host, connection.peer_port) == (host, port)
        assert connection.peer == f"{host}:{port}"
        assert connection.peer_bytes == encode_host(host, port)
        wire.close()


def test_who_connects_to_an_old_server_has_its_time_for_the_first_frame() -> None:
    with world(first_frame_s=10) as w:
        w.sim.advance(1_003)
        wire, _ = one_wire(w)
        w.sim.advance(9)
        assert len(w.server.connections) == 1
        w.sim.advance(6.1)
        assert len(w.server.connections) == 0
        wire.close()


def test_an_answer_for_a_peer_that_has_gone_goes_nowhere() -> None:
    with world() as w:
        wire, connection = one_wire(w)
        wire.send(request(KEEP))
        w.sim.until_idle()
        wire.close()
        w.sim.until_idle()
        (kept,) = w.log.kept
        connection.write_reply(kept, Reply())
        assert not connection.is_open
