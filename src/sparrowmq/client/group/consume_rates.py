"""How much a consumer pulls and consumes, for operators who ask: sums over the last minute."""

import asyncio
from collections import deque
from dataclasses import dataclass

from sparrowmq.protocol.connections import ConsumeStatus

WINDOW_S = 60
_MS = 1000


@dataclass(slots=True)
class _Second:
    second: int
    pulls: int = 0
    pull_ms: float = 0.0
    pulled: int = 0
    calls: int = 0
    call_ms: float = 0.0
    done: int = 0
    failed: int = 0


class ConsumeRates:
    """Counted per batch, never per message."""

    def __init__(self) -> None:
        self._topics: dict[str, deque[_Second]] = {}
        self._failed: dict[str, int] = {}

    def now_s(self) -> float:
        """The loop's time."""
        return asyncio.get_running_loop().time()

    def pulled(self, topic: str, count: int, started_s: float) -> None:
        """A pull found so many messages."""
        now_s = self.now_s()
        second = self._second(topic, now_s)
        second.pulls += 1
        second.pull_ms += (now_s - started_s) * _MS
        second.pulled += count

    def consumed(self, topic: str, done: int, failed: int, started_s: float) -> None:
        """A call of the handler ended."""
        now_s = self.now_s()
        second = self._second(topic, now_s)
        second.calls += 1
        second.call_ms += (now_s - started_s) * _MS
        second.done += done
        second.failed += failed
        if failed:
            self._failed[topic] = self._failed.get(topic, 0) + failed

    def status(self, topic: str) -> ConsumeStatus:
        """The last minute of a topic; failures since the start."""
        first = int(self.now_s()) - WINDOW_S
        seconds = [second for second in self._topics.get(topic, ()) if second.second > first]
        pulls = sum(second.pulls for second in seconds)
        calls = sum(second.calls for second in seconds)
        return ConsumeStatus(
            pull_rt=sum(second.pull_ms for second in seconds) / max(1, pulls),
            pull_tps=sum(second.pulled for second in seconds) / WINDOW_S,
            consume_rt=sum(second.call_ms for second in seconds) / max(1, calls),
            consume_ok_tps=sum(second.done for second in seconds) / WINDOW_S,
            consume_failed_tps=sum(second.failed for second in seconds) / WINDOW_S,
            consume_failed_msgs=self._failed.get(topic, 0),
        )

    def _second(self, topic: str, now_s: float) -> _Second:
        seconds = self._topics.get(topic)
        if seconds is None:
            seconds = self._topics[topic] = deque(maxlen=WINDOW_S)
        if not seconds or seconds[-1].second != int(now_s):
            seconds.append(_Second(int(now_s)))
        return seconds[-1]
