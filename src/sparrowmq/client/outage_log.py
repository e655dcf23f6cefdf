"""Outages as a client logs them: when one begins, once a minute while it lasts, and at its end.

A client has many queues, heartbeats and polls that all fail when one server is away. They report
here, by server, and the individual failures go to level DEBUG.

```
WARNING  broker broker-a cannot be reached: it closed the connection; trying again
WARNING  broker broker-a cannot be reached for 60 s now, 84 failures: connection refused, …
INFO     broker broker-a answers again after 73 s
```
"""

import logging
from collections.abc import Callable

from sparrowmq.client.errors import BrokerRefused
from sparrowmq.episodes import Episode
from sparrowmq.net.errors import CallTimedOut, ConnectionLost
from sparrowmq.protocol.codes import ResponseCode

_IN_WORDS = {
    ResponseCode.SERVICE_NOT_AVAILABLE: "it is starting or stopping",
    ResponseCode.SYSTEM_BUSY: "it is too busy",
    ResponseCode.SYSTEM_ERROR: "it failed",
    ResponseCode.TOPIC_NOT_EXIST: "it does not have the topic",
    ResponseCode.NO_PERMISSION: "it does not allow that",
}


def in_words(error: Exception) -> str:
    """Why a server could not be used, without numbers that mean something only in the protocol."""
    match error:
        case BrokerRefused():
            words = _IN_WORDS.get(ResponseCode(error.code)) if error.is_known else None
            reason = f"it refused, code {error.code}" if words is None else words
            return f"{reason} ({error.text})" if error.text else reason
        case ConnectionLost():
            return error.reason
        case CallTimedOut():
            return f"no answer within {error.timeout_s:g} s"
        case _:
            return str(error) or type(error).__name__


class Outages:
    """The servers that a client cannot use now."""

    def __init__(self, log: logging.Logger, time_s: Callable[[], float]) -> None:
        self._log = log
        self._time_s = time_s
        self._current: dict[str, Episode] = {}
        self._is_over = False

    def end(self) -> None:
        """The client stops: failures from now on are not outages."""
        self._is_over = True

    @property
    def is_any(self) -> bool:
        """Whether any server is away; if not, callers need not report that one answered."""
        return bool(self._current)

    def is_away(self, server: str) -> bool:
        """Whether its outage has begun and not ended."""
        return server in self._current

    def failed(self, server: str, error: Exception) -> None:
        """A server could not be used."""
        if self._is_over:
            return
        now_s = self._time_s()
        outage = self._current.get(server)
        if outage is None:
            outage = self._current[server] = Episode(now_s)
        if not outage.occurs(now_s):
            return
        if outage.is_new:
            self._log.warning("%s cannot be reached: %s; trying again", server, in_words(error))
        else:
            text = "%s cannot be reached for %.0f s now, %d failures: %s"
            lasts_s = outage.lasted_s(now_s)
            self._log.warning(text, server, lasts_s, outage.count, in_words(error))

    def reached(self, server: str) -> None:
        """A server answered. Costs one lookup in an empty dict while nothing is wrong."""
        if self._current and (outage := self._current.pop(server, None)) is not None:
            lasted_s = outage.lasted_s(self._time_s())
            self._log.info("%s answers again after %.0f s", server, lasted_s)
