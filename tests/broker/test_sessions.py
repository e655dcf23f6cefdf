"""Sessions: who is missed by a broker, and after how many looks."""

import random
from typing import Any

from sparrowmq.broker.live_clients import LOOKS, Sessions


class Peer:
    """The part of a connection that matters here."""

    frames_read = 0


def connection() -> Any:
    return Peer()


def test_a_connection_has_one_session_however_often_it_asks() -> None:
    sessions, mine, rng = Sessions(), connection(), random.Random(1)
    assert sessions.open(mine, rng) == sessions.open(mine, rng)
    assert sessions.open(connection(), rng) != sessions.open(mine, rng)
    assert len(sessions) == 2


def test_a_session_without_a_beat_for_8_looks_is_silent() -> None:
    sessions, mine = Sessions(), connection()
    name = sessions.open(mine, random.Random(1))
    assert sessions.beat(name)
    assert [len(sessions.look()) for _ in range(LOOKS)] == [0] * (LOOKS - 1) + [1]
    assert sessions.look() == [mine]


def test_a_beat_is_a_sign_of_life() -> None:
    sessions, mine = Sessions(), connection()
    name = sessions.open(mine, random.Random(1))
    for _ in range(10):
        assert sessions.beat(name)
        assert all(sessions.look() == [] for _ in range(LOOKS - 1))


def test_any_other_request_is_a_sign_of_life_too() -> None:
    sessions, mine = Sessions(), connection()
    sessions.beat(sessions.open(mine, random.Random(1)))
    for number in range(10):
        mine.frames_read = number + 1
        assert all(sessions.look() == [] for _ in range(LOOKS))


def test_a_member_that_never_sent_a_beat_is_not_missed() -> None:
    sessions, mine = Sessions(), connection()
    sessions.open(mine, random.Random(1))
    assert all(sessions.look() == [] for _ in range(10 * LOOKS))


def test_a_session_ends_with_its_connection() -> None:
    sessions, mine, rng = Sessions(), connection(), random.Random(1)
    name = sessions.open(mine, rng)
    sessions.forget(mine)
    assert not sessions.beat(name)
    assert sessions.open(mine, rng) != name
    sessions.forget(connection())
