"""Sessions of members that want to be missed quickly: who does not beat for seconds is gone.

opened by a heartbeat that asks ─▶ first beat ─▶ watched ─┬─ 8 looks without a sign of life: silent
                                                          └─ its connection ends: forgotten

A session lives and ends with its connection. Whoever names a session that is not there any more
learns that its queues may have been given to others meanwhile.
"""

import random

from sparrowmq.net.connection import Connection

LOOKS = 8
"""Looks, not time, make a member silent: a broker that was itself held up has looked only once, and
does not blame members whose beats wait unread."""


class _Session:
    __slots__ = ("connection", "frames_read", "is_watched", "looks", "name")

    def __init__(self, name: str, connection: Connection) -> None:
        self.name = name
        self.connection = connection
        self.frames_read = connection.frames_read
        self.looks = 0
        self.is_watched = False
        """Not before its first beat: a member that cannot send beats is not to be lost for it."""


class Sessions:
    """At most one for each connection."""

    def __init__(self) -> None:
        self._by_name: dict[str, _Session] = {}
        self._by_connection: dict[Connection, _Session] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def open(self, connection: Connection, rng: random.Random) -> str:
        """The name of the connection's session, a new one if it had none."""
        session = self._by_connection.get(connection)
        if session is None:
            session = _Session(f"{rng.getrandbits(64):016x}", connection)
            self._by_connection[connection] = self._by_name[session.name] = session
        return session.name

    def beat(self, name: str) -> bool:
        """A sign of life; False when there is no such session any more."""
        session = self._by_name.get(name)
        if session is None:
            return False
        session.is_watched = True
        session.looks = 0
        return True

    def forget(self, connection: Connection) -> None:
        """The connection ended, or has no consumer any more."""
        session = self._by_connection.pop(connection, None)
        if session is not None:
            del self._by_name[session.name]

    def look(self) -> list[Connection]:
        """Look once; connections of members that have been silent for too many looks."""
        silent = []
        for session in self._by_name.values():
            frames_read = session.connection.frames_read
            if frames_read != session.frames_read or not session.is_watched:
                session.frames_read = frames_read
                session.looks = 0
                continue
            session.looks += 1
            if session.looks >= LOOKS:
                silent.append(session.connection)
        return silent
