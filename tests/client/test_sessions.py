"""Sessions are looked at by the thread that beats, while the client's loop changes them."""

from typing import Any

from sparrowmq.client.sessions import Session, Sessions


class Watched(Session):
    """One that lets the other thread have its turn whenever it is looked at."""

    __slots__ = ("looked_at",)
    looked_at: Any

    def __getattribute__(self, name: str) -> Any:
        if name == "is_over":
            object.__getattribute__(self, "looked_at")()
        return object.__getattribute__(self, name)


def test_sessions_may_come_while_another_thread_looks_which_there_are() -> None:
    sessions = Sessions(lambda: 0.0)
    watched = Watched("10.0.0.1:10911", "first", 5.0, 0.0)
    watched.looked_at = lambda: sessions.answered("10.0.0.2:10911", "second", 5.0, 0.0)
    sessions._sessions[watched.address] = watched
    assert watched in sessions.live()
    assert len(sessions.live()) == 2
