"""Waiting for servers that are away: calls are repeated for a limited time.

A broker that restarts is away for seconds; that must not end a query that has run for weeks.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from sparrowmq.backoff import Backoff
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.spark.errors import BrokerAway, Refused, RocketMQError, Unreachable

T = TypeVar("T")

_BUSY = frozenset(
    {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLOW_CONTROL}
)
_PAUSES = Backoff(first_s=0.05, longest_s=1.0)


class Patience:
    """Repeats calls while a server is away or busy, for at most `retry_timeout_s`."""

    def __init__(
        self,
        retry_timeout_s: float,
        *,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._retry_timeout_s = retry_timeout_s
        self._now = now
        self._pause = pause

    def call(self, what: str, attempt: Callable[[], T]) -> T:
        """The result of the first attempt that gets through.

        Raises BrokerAway, which says how long it was tried, when none does; every other error at
        once.
        """
        started = self._now()
        failures = 0
        while True:
            try:
                return attempt()
            except RocketMQError as error:
                failures += 1
                pause_s = _PAUSES.wait_s(failures)
                waited_s = self._now() - started
                if not _may_pass(error):
                    raise
                if waited_s + pause_s > self._retry_timeout_s:
                    raise BrokerAway(
                        f"{what}: given up after {waited_s:.1f} s (option retryTimeout"
                        f" {self._retry_timeout_s:g}s): {error}. Nothing was skipped: start the"
                        " query again when the server is back"
                    ) from error
            self._pause(pause_s)


def _may_pass(error: RocketMQError) -> bool:
    if isinstance(error, Refused):
        return error.code in _BUSY
    return isinstance(error, Unreachable | BrokerAway)
