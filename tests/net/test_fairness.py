"""No connection takes more than its share: of turns, of memory, of patience, of connections."""

import asyncio
from dataclasses import fields
from typing import Any

import pytest

from sparrowmq.net.connection import Connection
from sparrowmq.net.endpoint import Limits
from sparrowmq.protocol.codes import ResponseCode
from tests.net.wire import Wire, request
from tests.net.world import PORT, Echo, Large, Wait, World, world

ECHO, LARGE, WAIT = (int(kind.CODE) for kind in (Echo, Large, Wait))


async def open_wires(count: int) -> list[Wire]:
    return [await Wire.open("server", PORT) for _ in range(count)]


@pytest.mark.parametrize(
    ("limits", "waits_for_all"),
    [
        ({"frames_per_callback": 4}, False),
        ({"reply_bytes_per_callback": 4_000}, False),
        ({"frames_per_callback": 10_000, "reply_bytes_per_callback": 10**9}, True),
    ],
)
def test_a_burst_is_served_in_order_and_lets_others_go_first(
    limits: dict[str, Any], waits_for_all: bool
) -> None:
    with world(whole=1, **limits) as w:

        async def burst() -> list[int]:
            greedy, modest = await open_wires(2)
            fields = {"text": "burst"}
            greedy.send(*(request(ECHO, fields, bytes(1000), opaque=i) for i in range(100)))
            modest.send(request(ECHO, {"text": "single"}))
            order = [(await greedy.answer()).header.opaque for _ in range(100)]
            await modest.answer()
            greedy.close()
            modest.close()
            return order

        assert w.run(burst()) == list(range(100))
        served = [text.split()[1] for text in w.log.seen]
        before = served.index("single")
        assert (before == 100) is waits_for_all
        assert len(served) == 101


class Deaf(asyncio.Protocol):
    """Sends and does not read."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.pause_reading()
        self.received = 0

    def data_received(self, data: bytes) -> None:
        self.received += len(data)


def deaf_peer(w: World, requests: int, pause_s: float = 0) -> Deaf:
    """A client that requests a lot, all at once or one by one."""

    async def shout() -> Deaf:
        loop = asyncio.get_running_loop()
        _, deaf = await loop.create_connection(Deaf, "server", PORT)
        frame = request(LARGE, {"sizeBytes": "100000"})
        if not pause_s:
            deaf.transport.write(frame * requests)
            return deaf
        for _ in range(requests):
            deaf.transport.write(frame)
            await asyncio.sleep(pause_s)
        return deaf

    deaf: Deaf = w.run(shout(), "deaf")
    w.sim.until_idle()
    return deaf


@pytest.mark.parametrize(("pause_s", "turn_bytes"), [(0, 100_000), (0.01, 10**9)])
def test_a_peer_that_does_not_read_its_answers_is_not_read_either(
    pause_s: float, turn_bytes: int
) -> None:
    limits = {"write_buffer_bytes": 300_000, "reply_bytes_per_callback": turn_bytes}
    with world(whole=1, **limits) as w:
        deaf = deaf_peer(w, 300, pause_s)
        served = len(w.log.seen)
        assert served < 20
        w.sim.advance(30)
        assert len(w.log.seen) == served
        deaf.transport.resume_reading()
        w.sim.until_idle()
        assert len(w.log.seen) == 300
        assert deaf.received > 300 * 100_000
        deaf.transport.close()


def test_a_peer_that_never_reads_is_cut_off_with_all_it_was_owed() -> None:
    with world(write_buffer_bytes=300_000, idle_s=60) as w:
        deaf_peer(w, requests=300)
        assert len(w.server.connections) == 1
        w.sim.advance(70)
        assert len(w.server.connections) == 0
        assert len(w.closed) == 1


@pytest.mark.parametrize(("limit", "left"), [(2_500_000, 2), (5_000_000, 3)])
def test_unread_replies_have_a_limit_for_all_peers_together(
    limit: int, left: int, caplog: pytest.LogCaptureFixture
) -> None:
    limits = {"write_buffer_bytes": 300_000, "max_unread_bytes": limit}
    with world(whole=1, **limits) as w, caplog.at_level("WARNING"):
        for _ in range(3):
            deaf_peer(w, requests=300)
            w.sim.advance(1)
        assert len(w.server.connections) == left
        assert w.server.unread.total_bytes <= limit
        assert ("bytes of replies that it does not read" in caplog.text) is (left < 3)


@pytest.mark.parametrize("buffer_bytes", [300_000, 10**9])
def test_a_peer_that_finally_reads_is_no_longer_counted(buffer_bytes: int) -> None:
    with world(whole=1, write_buffer_bytes=buffer_bytes) as w:
        deaf = deaf_peer(w, requests=30)
        w.sim.advance(6)
        assert w.server.unread.total_bytes > 300_000
        deaf.transport.resume_reading()
        w.sim.advance(6)
        assert w.server.unread.total_bytes == 0
        assert deaf.received > 30 * 100_000
        deaf.transport.close()


def test_a_silent_connection_is_closed_early_and_an_idle_one_late() -> None:
    with world(first_frame_s=10, idle_s=120) as w:
        mute, once = w.run(open_wires(2))
        w.run(once.ask(request(ECHO, {"text": "hello"})))
        w.sim.advance(16)
        assert w.run(mute.is_closed())
        assert len(w.server.connections) == 1
        w.sim.advance(90)
        assert len(w.server.connections) == 1
        w.sim.advance(20)
        assert w.run(once.is_closed())
        mute.close()
        once.close()


@pytest.mark.parametrize(
    ("sent", "limits"),
    [(b"", {"first_frame_s": 10}), (b"\x00\x00", {"first_frame_s": 100, "whole_frame_s": 10})],
    ids=["nothing", "half frames"],
)
def test_a_flood_that_has_fallen_silent_is_closed_in_portions(
    sent: bytes, limits: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed_by_turns = [0]
    abort = Connection.abort

    def counted(connection: Connection) -> None:
        if not closed_by_turns[-1]:
            asyncio.get_running_loop().call_soon(closed_by_turns.append, 0)
        closed_by_turns[-1] += 1
        abort(connection)

    with world(idle_s=120, **limits) as w:
        flood = w.run(open_wires(400), "flood")
        (greeted,) = w.run(open_wires(1))
        w.run(greet([greeted]))
        for wire in flood:
            wire.send(sent)
        monkeypatch.setattr(Connection, "abort", counted)
        w.sim.advance(16)
        assert (sum(closed_by_turns), len(w.server.connections)) == (400, 1)
        assert max(closed_by_turns) <= 128
        w.sim.advance(120)
        assert not w.server.connections
        for wire in (*flood, greeted):
            wire.close()


def test_half_a_frame_is_not_a_first_frame() -> None:
    with world(first_frame_s=10) as w:
        (slow,) = w.run(open_wires(1))
        for byte in request(ECHO, {"text": "a"})[:10]:
            slow.send(bytes([byte]))
            w.sim.advance(2)
        assert w.run(slow.is_closed())
        slow.close()


def test_a_connection_that_keeps_talking_stays() -> None:
    with world(idle_s=30) as w:
        (wire,) = w.run(open_wires(1))
        for _ in range(10):
            w.run(wire.ask(request(ECHO, {"text": "a"})))
            w.sim.advance(20)
        assert len(w.server.connections) == 1
        wire.close()


async def greet(wires: list[Wire]) -> list[Wire]:
    """Every client sends one request."""
    for wire in wires:
        assert (await wire.ask(request(ECHO, {"text": "a"}))).code == ResponseCode.SUCCESS
    return wires


def test_connections_beyond_the_limit_are_refused_until_others_leave() -> None:
    with world(max_connections=3) as w:
        wires = w.run(open_wires(3))
        w.run(greet(wires))
        (extra,) = w.run(open_wires(1))
        assert w.run(extra.is_closed())
        assert w.sim.now_s < 1, "refused, not forgotten until it was idle"
        extra.close()
        w.run(greet(wires))
        wires[0].close()
        w.sim.until_idle()
        late = w.run(open_wires(1))
        w.run(greet(late))
        for wire in (*wires, *late):
            wire.close()


def test_a_full_server_closes_first_the_oldest_connection_that_has_sent_nothing() -> None:
    with world(max_connections=3) as w:
        wires = w.run(open_wires(3))
        w.run(greet(wires[:1]))
        wires += w.run(open_wires(1))
        assert w.run(wires[1].is_closed()), "the older of the two that have sent nothing"
        w.run(greet([wires[0], *wires[2:]]))
        assert w.sim.now_s < 1
        for wire in wires:
            wire.close()


def test_a_flood_of_silent_connections_leaves_room_for_those_that_send() -> None:
    with world(max_connections=20) as w:
        flood = w.run(open_wires(50), "flood")
        modest = w.run(open_wires(1))
        flood += w.run(open_wires(10), "flood")
        w.run(greet(modest))
        flood += w.run(open_wires(50), "flood")
        w.run(greet(modest))
        w.sim.until_idle()
        assert len(w.server.connections) == 20
        for wire in (*flood, *modest):
            wire.close()


async def ask_to_wait(wire: Wire, delay_ms: int) -> None:
    wire.send(request(WAIT, {"delayMs": str(delay_ms)}))


@pytest.mark.parametrize(
    ("silent_s", "is_waited_for", "is_closed"),
    [(50, False, False), (70, False, True), (70, True, False)],
)
def test_a_full_server_closes_connections_silent_for_half_the_time_allowed_and_not_in_use(
    silent_s: float, is_waited_for: bool, is_closed: bool
) -> None:
    with world(max_connections=2, idle_s=120) as w:
        talkative, silent = wires = w.run(open_wires(2))
        w.run(greet(wires))
        if is_waited_for:
            w.run(ask_to_wait(silent, 100_000))
        w.sim.advance(silent_s)
        w.run(greet([talkative]))
        (late,) = w.run(open_wires(1))
        if is_closed:
            assert w.run(silent.is_closed())
            w.run(greet([talkative, late]))
        else:
            assert w.run(late.is_closed())
            assert len(w.server.connections) == 2
        for wire in (*wires, late):
            wire.close()


def test_a_full_server_keeps_those_that_its_owner_says_are_in_use() -> None:
    with world(max_connections=1, idle_s=120) as w:
        wires = w.run(open_wires(1))
        w.run(greet(wires))
        w.in_use = set(w.server.connections)
        w.sim.advance(70)
        wires += w.run(open_wires(1))
        assert w.run(wires[1].is_closed())
        w.in_use = set()
        w.sim.advance(2)
        wires += w.run(open_wires(1))
        assert w.run(wires[0].is_closed())
        w.run(greet(wires[2:]))
        for wire in wires:
            wire.close()


def test_what_was_turned_away_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with world(max_connections=3) as w, caplog.at_level("WARNING"):
        wires = w.run(open_wires(9))
        w.sim.advance(6)
        (line,) = [record.getMessage() for record in caplog.records]
        assert line == "connections beyond the limit of 3: 6 closed that had sent no request"
        for wire in wires:
            wire.close()


def test_each_address_has_its_own_limit_that_does_not_affect_others() -> None:
    with world(max_connections_per_address=2) as w:
        greedy = w.run(open_wires(3), "greedy")
        w.sim.until_idle()
        assert w.run(greedy[2].is_closed(), "greedy")
        assert w.sim.now_s < 1, "refused, not forgotten until it was idle"
        for wire in greedy[:2]:
            answer = w.run(wire.ask(request(ECHO, {"text": "a"})), "greedy")
            assert answer.code == ResponseCode.SUCCESS
        (other,) = w.run(open_wires(1), "other")
        answer = w.run(other.ask(request(ECHO, {"text": "a"})), "other")
        assert answer.code == ResponseCode.SUCCESS
        greedy[0].close()
        w.sim.until_idle()
        (late,) = w.run(open_wires(1), "greedy")
        answer = w.run(late.ask(request(ECHO, {"text": "a"})), "greedy")
        assert answer.code == ResponseCode.SUCCESS, "there is room again"
        for wire in (*greedy, other, late):
            wire.close()


def test_loopback_has_no_limit_per_address() -> None:
    with world(max_connections_per_address=2) as w:

        async def many() -> int:
            wires = [await Wire.open("127.0.0.1", PORT) for _ in range(5)]
            for wire in wires:
                await wire.ask(request(ECHO, {"text": "a"}))
                wire.close()
            return len(wires)

        assert w.run(many(), "server") == 5


def test_connections_are_ended_in_the_order_they_came() -> None:
    with world() as w:
        wires = w.run(open_wires(20))
        w.sim.until_idle()
        ports = [wire.writer.get_extra_info("sockname")[1] for wire in wires]
        before_s = w.sim.now_s
        w.run(w.server.close(), "server")
        assert [connection.peer_port for connection in w.closed] == ports
        assert w.sim.now_s - before_s < 1, "peers that read everything cause no wait"
        with pytest.raises(ConnectionRefusedError):
            w.run(open_wires(1))
        for wire in wires:
            wire.close()


@pytest.mark.parametrize("name", [each.name for each in fields(Limits)])
def test_a_limit_of_0_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 0, must be more than 0"):
        Limits(**{name: 0})
    assert getattr(Limits(**{name: 1}), name) == 1


@pytest.mark.parametrize("is_deaf", [False, True])
def test_a_server_stops_also_when_a_peer_does_not_read(is_deaf: bool) -> None:
    with world(write_buffer_bytes=300_000) as w:
        if is_deaf:
            deaf_peer(w, requests=300)
        else:
            (wire,) = w.run(open_wires(1))
            w.run(wire.ask(request(ECHO, {"text": "a"})))
            wire.send(request(WAIT, {"delayMs": "60000"}))
            w.sim.until_idle()
        before_s = w.sim.now_s
        w.run(w.server.close(), "server")
        assert w.sim.now_s - before_s <= 5
        assert len(w.server.connections) == 0
        if not is_deaf:
            assert w.log.cancelled == 1
            wire.close()
