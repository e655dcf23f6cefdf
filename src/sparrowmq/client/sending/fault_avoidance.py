"""Slow and failing brokers, which producers with `avoid_faults` use less."""

_PAUSES = ((15_000, 30.0), (5_000, 10.0), (3_000, 6.0), (1_800, 5.0), (550, 2.0))
"""A broker whose answer took this many milliseconds is avoided for this many seconds.

The numbers are RocketMQ's (MQFaultStrategy)."""

_FAILURE_MS = 10_000
"""A failure counts as an answer that took this long."""


def pause_s(latency_ms: float) -> float:
    """How long to avoid a broker that took this long."""
    return next((pause for least_ms, pause in _PAUSES if latency_ms >= least_ms), 0.0)


class FaultAvoidance:
    """Slow and failing brokers, and until when each is avoided. Times are the loop's."""

    def __init__(self) -> None:
        self._until_s: dict[str, float] = {}

    def answered(self, broker_name: str, latency_s: float, now_s: float) -> None:
        """A broker took a message; a slow one is avoided for a while."""
        self._avoid(broker_name, pause_s(latency_s * 1000), now_s)

    def failed(self, broker_name: str, now_s: float) -> None:
        """A broker did not answer, or refused."""
        self._avoid(broker_name, pause_s(_FAILURE_MS), now_s)

    def is_available(self, broker_name: str, now_s: float) -> bool:
        """Whether the broker may be used now."""
        return self._until_s.get(broker_name, now_s) <= now_s

    def _avoid(self, broker_name: str, seconds: float, now_s: float) -> None:
        # A quick answer does not end a pause: it may have been sent before the failure
        if seconds and now_s + seconds > self._until_s.get(broker_name, now_s):
            self._until_s[broker_name] = now_s + seconds
