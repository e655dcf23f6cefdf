"""What a connection knows about its peer, and how it behaves once the peer has gone."""

import asyncio

import pytest

from sparrowmq.net.connection import Connection
from sparrowmq.net.errors import ConnectionLost, NetError
from sparrowmq.net.peers import Peers
from sparrowmq.net.routes import Reply
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import FrameDecoder
from sparrowmq.protocol.hosts import encode_host
from tests.net.calling import SERVER, calling, failure
from tests.net.wire import Wire, request
from tests.net.world import PORT, Echo, Keep, World, world

ECHO, KEEP = (int(kind.CODE) for kind in (Echo, Keep))


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
    ("is_reset", "says"), [(False, "it closed the connection"), (True, "it reset the connection")]
)
def test_a_lost_call_names_the_peer_and_how_the_connection_ended(is_reset: bool, says: str) -> None:
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


def test_a_client_of_a_long_running_server_has_its_time_for_the_first_frame() -> None:
    with world(first_frame_s=10) as w:
        w.sim.advance(1_003)
        wire, _ = one_wire(w)
        w.sim.advance(9)
        assert len(w.server.connections) == 1
        w.sim.advance(6.1)
        assert len(w.server.connections) == 0
        wire.close()


@pytest.mark.parametrize("binary", [False, True])
def test_a_code_without_a_text_is_a_code_all_the_same(binary: bool) -> None:
    with world() as w:
        wire, connection = one_wire(w)
        wire.send(request(KEEP, binary=binary))
        w.sim.until_idle()
        (kept,) = w.log.kept
        connection.write_reply(kept, Reply(code=ResponseCode.PULL_NOT_FOUND))
        answer = w.run(wire.answer())
        assert (answer.code, answer.remark) == (ResponseCode.PULL_NOT_FOUND, "")
        wire.close()


class Held(asyncio.Transport):
    """Keeps what is written and whether it is to be read from.

    `is_broken`: a write has failed, which the protocol learns in the loop's next turn.
    """

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.9", 1)})
        self.written = bytearray()
        self.is_read = True
        self.is_broken = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.is_broken

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


def test_a_burst_is_not_read_further_until_it_is_answered() -> None:
    with world(frames_per_callback=4) as w:

        async def burst() -> tuple[bool, bool, int]:
            connection, transport = Connection(w.server.endpoint), Held()
            connection.connection_made(transport)
            frames = [request(ECHO, {"text": "a"}, opaque=number) for number in range(10)]
            connection.data_received(b"".join(frames))
            at_once = transport.is_read
            await asyncio.sleep(1)
            answers = FrameDecoder().feed(bytes(transport.written))
            connection.connection_lost(None)
            return at_once, transport.is_read, len(answers)

        assert w.run(burst(), "server") == (False, True, 10)


def test_nothing_is_written_after_a_write_that_failed() -> None:
    with world() as w:

        async def write_on() -> bytes:
            connection, transport = Connection(w.server.endpoint), Held()
            connection.connection_made(transport)
            connection.data_received(request(KEEP))
            transport.is_broken = True
            (kept,) = w.log.kept
            connection.write_reply(kept, Reply())
            connection.data_received(request(ECHO, {"text": "a"}))
            with pytest.raises(ConnectionLost):
                connection.send_oneway(Echo(text="a"))
            call = connection.call(Echo(text="a"), timeout_s=1)
            connection.connection_lost(None)
            with pytest.raises(ConnectionLost):
                await call
            return bytes(transport.written)

        assert w.run(write_on(), "server") == b""
