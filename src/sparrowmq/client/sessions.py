"""Sessions at brokers: whether a broker may have given this client's queues away meanwhile.

opened by a heartbeat's answer ─▶ keep-alives confirm it ─┬─ refused, or connection closed: over
                                                          └─ no answer for long: in doubt

Only our own brokers have them. A broker that gets no keep-alives frees the member's queues after
`life_s`; a session confirmed within the last three quarters of that is certainly still alive.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sparrowmq.net.errors import NetError

_SURE = 0.75
"""Less than 7/8, where a broker's eighth look may come already."""
_KEEPALIVES = 4
"""Keep-alives per session life, so that two may get lost."""


class BrokerSilent(NetError):
    """A broker does not answer keep-alives: its process or its host is frozen."""

    def __init__(self, address: str) -> None:
        super().__init__(f"{address} does not answer keep-alives")


class Session:
    """A session at one broker. Times are the client's; other threads only store whole values."""

    __slots__ = ("address", "confirmed_s", "is_over", "is_unreachable", "life_s", "name")

    def __init__(self, address: str, name: str, life_s: float, confirmed_s: float) -> None:
        self.address = address
        self.name = name
        self.life_s = life_s
        self.confirmed_s = confirmed_s
        """When the last request was sent that the broker answered."""
        self.is_unreachable = False
        """Whether the last keep-alive got no answer at all."""
        self.is_over = False

    @property
    def interval_s(self) -> float:
        """Time from one keep-alive to the next."""
        return self.life_s / _KEEPALIVES

    @property
    def sure_s(self) -> float:
        """How long a confirmation is valid."""
        return self.life_s * _SURE


class Sessions:
    """The sessions of one client, by broker address."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self._sessions: dict[str, Session] = {}
        self._silent: set[str] = set()
        """Addresses of brokers that did not answer the last heartbeat."""
        self._waits: dict[str, set[asyncio.Timeout]] = {}
        """Waits for a broker's answers, by its address, that end when the broker falls silent."""
        self.listeners: list[Callable[[], None]] = []
        """Called when a session began or ended."""

    def live(self) -> list[Session]:
        """The sessions that need keep-alives. The keep-alive thread calls this too, so it iterates
        over a copy: the client's loop may add a session meanwhile."""
        return [session for session in tuple(self._sessions.values()) if not session.is_over]

    def get(self, address: str | None) -> Session | None:
        """The session at a broker; None if there is none, or no longer one."""
        return None if address is None else self._sessions.get(address)

    def name(self, address: str | None) -> str:
        """The name of the session at a broker, empty if there is none."""
        session = self.get(address)
        return "" if session is None else session.name

    def is_sure(self, address: str | None) -> bool:
        """Whether the broker's present view of us is known: it has no sessions, or ours lives."""
        session = self.get(address)
        return session is None or self.now_s() - session.confirmed_s <= session.sure_s

    def is_unreachable(self, address: str | None) -> bool:
        """Whether the broker has recently failed to answer."""
        session = self.get(address)
        if address is None or address in self._silent:
            return True
        return session is not None and session.is_unreachable

    def unanswered(self, address: str) -> None:
        """A heartbeat got no answer."""
        self._silent.add(address)
        self.fell_silent(address)

    def fell_silent(self, address: str) -> None:
        """A broker did not answer: end what waits for it. Call it in the client's loop."""
        for wait in self._waits.pop(address, ()):
            wait.reschedule(asyncio.get_running_loop().time())

    @contextmanager
    def ends_with_silence(self, address: str, wait: asyncio.Timeout) -> Iterator[None]:
        """While the block runs, `wait` times out when the broker falls silent."""
        waits = self._waits.setdefault(address, set())
        waits.add(wait)
        try:
            yield
        finally:
            waits.discard(wait)
            if not waits and self._waits.get(address) is waits:
                del self._waits[address]

    def answered(self, address: str, name: str | None, life_s: float, sent_s: float) -> None:
        """A heartbeat was answered, with a session if the broker supports them."""
        self._silent.discard(address)
        known = self._sessions.get(address)
        if known is not None and known.name == name:
            known.confirmed_s = max(known.confirmed_s, sent_s)
            known.is_unreachable = False
            return
        if known is not None:
            known.is_over = True
            del self._sessions[address]
        if name:
            self._sessions[address] = Session(address, name, life_s, sent_s)
        if name or known is not None:
            self._notify()

    def ended(self, session: Session) -> None:
        """The broker no longer knows this session."""
        session.is_over = True
        if self._sessions.get(session.address) is session:
            del self._sessions[session.address]
            self._notify()

    def closed(self, address: str) -> None:
        """The connection to a broker closed, and with it, as far as we can know, the session."""
        session = self._sessions.get(address)
        if session is not None:
            self.ended(session)

    def end_all(self) -> None:
        """The client has no consumers left, or stops."""
        for session in self._sessions.values():
            session.is_over = True
        self._sessions.clear()

    def _notify(self) -> None:
        for listener in tuple(self.listeners):
            listener()
