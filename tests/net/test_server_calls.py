"""A server calls its clients over the connections they opened."""

from sparrowmq.net.calls import Response
from sparrowmq.net.connection import Connection
from sparrowmq.net.peers import Peers
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.protocol.codes import ResponseCode
from tests.net.calling import SERVER, calling
from tests.net.world import Echo, Echoed, Large, world


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


def test_a_client_without_routes_answers_that_it_serves_nothing() -> None:
    with world() as w:

        async def work(peers: Peers) -> Response:
            await peers.call(SERVER, Echo(text="hello"))
            (connection,) = w.server.connections
            return await connection.call(Large(size_bytes=1), timeout_s=1)

        assert calling(w, work).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
