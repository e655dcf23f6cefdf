"""Incomplete frames use limited memory for a limited time."""

import asyncio

import pytest

from sparrowmq.protocol.codes import ResponseCode
from tests.net.wire import Wire, request
from tests.net.world import PORT, Echo, World, world

ECHO = int(Echo.CODE)
KIB = 1024


def frame(body_bytes: int) -> bytes:
    return request(ECHO, {"text": "a"}, bytes(body_bytes))


WHOLE = frame(220 * KIB)


async def begin(*sizes: int) -> list[Wire]:
    """Connections that send so many bytes of `WHOLE`."""
    wires = []
    for size in sizes:
        wire = await Wire.open("server", PORT)
        wire.send(WHOLE[:size])
        wires.append(wire)
        await asyncio.sleep(0.1)
    return wires


def opened(w: World, *sizes: int) -> list[Wire]:
    wires: list[Wire] = w.run(begin(*sizes))
    w.sim.advance(0.5)
    return wires


def close(*wires: Wire) -> None:
    for wire in wires:
        wire.close()


def test_what_is_held_is_counted_until_the_frame_is_whole_or_the_connection_ends() -> None:
    with world() as w:
        one, two = opened(w, 100 * KIB, 50 * KIB)
        assert w.server.unfinished.total_bytes == 150 * KIB
        one.send(WHOLE[100 * KIB :])
        assert w.run(one.answer()).code == ResponseCode.SUCCESS
        assert w.server.unfinished.total_bytes == 50 * KIB
        two.close()
        w.sim.advance(1)
        assert w.server.unfinished.total_bytes == 0
        one.close()


def test_beyond_the_limit_those_that_held_the_most_for_longest_are_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with world(max_unfinished_bytes=400 * KIB) as w, caplog.at_level("WARNING"):
        large, small, other = opened(w, 200 * KIB, 1 * KIB, 150 * KIB)
        (last,) = opened(w, 100 * KIB)
        assert w.run(large.is_closed())
        assert "bytes of an unfinished frame for" in caplog.text
        assert "and all together may be 409600 bytes" in caplog.text
        assert w.server.unfinished.total_bytes == 251 * KIB
        for wire, size in ((other, 150), (last, 100), (small, 1)):
            wire.send(WHOLE[size * KIB :])
            assert w.run(wire.answer()).code == ResponseCode.SUCCESS
        close(small, large, other, last)


def test_small_requests_are_served_while_others_use_up_the_buffer_limit() -> None:
    with world(max_unfinished_bytes=400 * KIB) as w:
        holders = opened(w, 200 * KIB, 199 * KIB)
        (modest,) = opened(w, 0)
        assert w.run(modest.ask(frame(100))).code == ResponseCode.SUCCESS
        assert w.run(modest.ask(frame(60 * KIB))).code == ResponseCode.SUCCESS
        close(*holders, modest)


def test_many_large_frames_at_once_are_all_served_within_the_limit() -> None:
    with world(max_unfinished_bytes=20 * 1024 * KIB) as w:

        async def send_all() -> list[int]:
            wires = [await Wire.open("server", PORT) for _ in range(16)]
            answers = await asyncio.gather(*(wire.ask(frame(1024 * KIB)) for wire in wires))
            close(*wires)
            return [answer.code for answer in answers]

        assert w.run(send_all()) == [ResponseCode.SUCCESS] * 16
        assert w.server.unfinished.total_bytes == 0


@pytest.mark.parametrize("has_spoken", [False, True])
def test_a_trickle_of_bytes_does_not_keep_a_frame_open_for_ever(
    has_spoken: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with world(first_frame_s=10, whole_frame_s=60) as w, caplog.at_level("WARNING"):
        (wire,) = opened(w, 0)
        if has_spoken:
            w.run(wire.ask(frame(1)))
        sent = 0
        while w.server.connections and sent < 100:
            wire.send(frame(1000)[sent : sent + 1])
            sent += 1
            w.sim.advance(2)
        assert 30 <= sent <= 34
        assert "bytes of an unfinished frame for more than 60 s" in caplog.text
        assert w.server.unfinished.total_bytes == 0
        wire.close()


def test_a_slow_line_has_time_for_a_large_message() -> None:
    with world(max_frame_bytes=5 * 1024 * KIB) as w:
        (wire,) = opened(w, 0)
        data = frame(4096 * KIB)
        a_second = 40 * KIB
        for at in range(0, len(data), a_second):
            wire.send(data[at : at + a_second])
            w.sim.advance(1)
        assert w.run(wire.answer()).code == ResponseCode.SUCCESS
        wire.close()


def test_each_frame_has_its_own_time_limit() -> None:
    with world(whole_frame_s=60) as w:
        (wire,) = opened(w, 0)
        data = frame(100) * 20
        half = len(frame(100)) // 2
        for at in range(0, len(data), half):  # never whole, and never the same one for long
            wire.send(data[at : at + half])
            w.sim.advance(5)
        assert len(w.server.connections) == 1
        wire.close()
