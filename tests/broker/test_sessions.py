"""Sessions of members: a broker misses one that is silent for too many scans."""

import random
from typing import Any

from sparrowmq.broker.live_clients import SCANS, MemberSessions


class Peer:
    """The part of a connection that matters here."""

    frames_read = 0


def connection() -> Any:
    return Peer()


def test_a_connection_has_one_session_for_any_number_of_requests() -> None:
    sessions, mine, rng = MemberSessions(), connection(), random.Random(1)
    assert sessions.open(mine, rng) == sessions.open(mine, rng)
    assert sessions.open(connection(), rng) != sessions.open(mine, rng)
    assert len(sessions) == 2


def test_a_session_without_a_keep_alive_for_8_looks_is_silent() -> None:
    sessions, mine = MemberSessions(), connection()
    name = sessions.open(mine, random.Random(1))
    assert sessions.keep_alive(name)
    assert [len(sessions.scan()) for _ in range(SCANS)] == [0] * (SCANS - 1) + [1]
    assert sessions.scan() == [mine]


def test_a_keep_alive_is_a_sign_of_life() -> None:
    sessions, mine = MemberSessions(), connection()
    name = sessions.open(mine, random.Random(1))
    for _ in range(10):
        assert sessions.keep_alive(name)
        assert all(sessions.scan() == [] for _ in range(SCANS - 1))


def test_any_other_request_is_a_sign_of_life_too() -> None:
    sessions, mine = MemberSessions(), connection()
    sessions.keep_alive(sessions.open(mine, random.Random(1)))
    for number in range(10):
        mine.frames_read = number + 1
        assert all(sessions.scan() == [] for _ in range(SCANS))


def test_a_member_that_never_sent_a_keep_alive_is_not_missed() -> None:
    sessions, mine = MemberSessions(), connection()
    sessions.open(mine, random.Random(1))
    assert all(sessions.scan() == [] for _ in range(10 * SCANS))


def test_a_session_ends_with_its_connection() -> None:
    sessions, mine, rng = MemberSessions(), connection(), random.Random(1)
    name = sessions.open(mine, rng)
    sessions.forget(mine)
    assert not sessions.keep_alive(name)
    assert sessions.open(mine, rng) != name
    sessions.forget(connection())
