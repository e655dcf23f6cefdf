"""Login sessions, tokens against forged forms, and a limit on password guesses."""

import hashlib
import hmac
import secrets
from collections import OrderedDict, deque
from dataclasses import dataclass, replace
from ipaddress import ip_address, ip_network

from sparrowmq.clock import Clock
from sparrowmq.console.users import User

_ID_BYTES = 32
_IDLE_MS = 30 * 60 * 1000
_LONGEST_MS = 12 * 3600 * 1000
_MOST_SESSIONS = 1_000
_MINUTE_MS = 60 * 1000
ATTEMPTS_PER_NAME = 5
"""Attempts per minute from one address at one user name."""
_ATTEMPTS_PER_ADDRESS = 20
_MOST_COUNTED = 10_000


def new_id() -> str:
    """256 bits that cannot be guessed."""
    return secrets.token_urlsafe(_ID_BYTES)


class FormTokens:
    """Tokens that prove that this console made a form, bound to the visitor's cookie."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(_ID_BYTES)

    def of(self, visitor: str) -> str:
        """The token of the visitor with this cookie."""
        return hmac.new(self._secret, visitor.encode(), hashlib.sha256).hexdigest()

    def matches(self, visitor: str, token: str) -> bool:
        """Whether a form with the token came from a page of that visitor."""
        return bool(visitor) and hmac.compare_digest(self.of(visitor).encode(), token.encode())


@dataclass(frozen=True, slots=True)
class _Session:
    user: User
    began_ms: int
    used_ms: int


class LoginSessions:
    """Logged-in users, by the ids in their cookies."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: OrderedDict[str, _Session] = OrderedDict()

    def begin(self, user: User) -> str:
        """Begin a session and return its id; ends the oldest one if there are too many."""
        now = self._clock()
        while len(self._open) >= _MOST_SESSIONS:
            self._open.popitem(last=False)
        found = new_id()
        self._open[found] = _Session(user, now, now)
        return found

    def is_open(self, session: str) -> bool:
        """Whether a session is still open; asking does not count as use."""
        found = self._open.get(session)
        return found is not None and not self._has_ended(found)

    def _has_ended(self, session: _Session) -> bool:
        now = self._clock()
        return now - session.used_ms > _IDLE_MS or now - session.began_ms > _LONGEST_MS

    def user_of(self, session: str) -> User | None:
        """The user of a session; None if it has expired or was logged out."""
        found = self._open.get(session)
        if found is None:
            return None
        if self._has_ended(found):
            del self._open[session]
            return None
        self._open[session] = replace(found, used_ms=self._clock())
        self._open.move_to_end(session)
        return found.user

    def end(self, session: str) -> None:
        """Log out."""
        self._open.pop(session, None)


def _site(address: str) -> str:
    """What counts as one address: of IPv6 a network of 64 bits, since one machine may use all of
    its addresses."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return address if found.version == 4 else str(ip_network((found, 64), strict=False))


class LoginLimit:
    """Limits password attempts per address, and per address and user name."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tried: OrderedDict[tuple[str, ...], deque[int]] = OrderedDict()

    def try_one(self, address: str, name: str) -> int:
        """Count an attempt. Returns 0 if it is allowed, else the seconds until the next one is."""
        now, address = self._clock(), _site(address)
        limits = {(address,): _ATTEMPTS_PER_ADDRESS, (address, name): ATTEMPTS_PER_NAME}
        waits = [self._wait_ms(key, most, now) for key, most in limits.items()]
        if any(waits):
            return -(-max(waits) // 1000)
        for key in limits:
            self._tried.setdefault(key, deque()).append(now)
            self._tried.move_to_end(key)
        while len(self._tried) > _MOST_COUNTED:
            self._tried.popitem(last=False)
        return 0

    def _wait_ms(self, key: tuple[str, ...], most: int, now: int) -> int:
        times = self._tried.get(key, deque())
        while times and now - times[0] >= _MINUTE_MS:
            times.popleft()
        return 0 if len(times) < most else times[0] + _MINUTE_MS - now
