"""Sessions are read by the keep-alive thread while the client's loop changes them."""

from collections.abc import Callable
from typing import Any

import pytest

from sparrowmq.client import sessions as sessions_module
from sparrowmq.client.sessions import Session, Sessions


def nothing() -> None:
    pass


class Watched(Session):
    """One that lets the other thread have its turn whenever it is looked at."""

    __slots__ = ()
    looked_at: Callable[[], None] = staticmethod(nothing)

    def __getattribute__(self, name: str) -> Any:
        if name == "is_over":
            type(self).looked_at()
        return object.__getattribute__(self, name)


def test_sessions_may_be_added_while_another_thread_lists_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sessions = Sessions(lambda: 0.0)
    monkeypatch.setattr(sessions_module, "Session", Watched)
    sessions.answered("10.0.0.1:10911", "first", 5.0, 0.0)
    another = staticmethod(lambda: sessions.answered("10.0.0.2:10911", "second", 5.0, 0.0))
    monkeypatch.setattr(Watched, "looked_at", another)
    assert next(session.name for session in sessions.live()) == "first"
    assert len(sessions.live()) == 2
