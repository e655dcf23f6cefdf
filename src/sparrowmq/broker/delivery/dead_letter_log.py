"""The log of dead letters: a warning for each, or a count if a group gives up many at once.

A wrong deployment can send every message of a topic to the dead-letter queue, thousands per second.
The first few of a group in each interval show what its dead letters look like; the others are
counted, and the count follows at the end of the interval. Counting per group keeps the flood of one
from hiding the single dead letter of another.
"""

import asyncio
import logging
import math
from collections import Counter

from sparrowmq.broker.delivery.placement import Placement
from sparrowmq.clock import Clock
from sparrowmq.episodes import Episode
from sparrowmq.protocol.names import DLQ_PREFIX

INTERVAL_S = 10
MOST_PER_GROUP = 5
"""Warnings for single messages, per group and interval."""


class DeadLetterLog:
    """Logs messages that groups have given up."""

    def __init__(self, log: logging.Logger, monotonic: Clock) -> None:
        self._log = log
        self._monotonic = monotonic
        self._given_up: dict[str, Episode] = {}
        """Dead letters in this interval, by group."""
        self.counts: Counter[tuple[str, str]] = Counter()
        """(group, topic that was consumed) → dead letters since the start."""

    def note(self, placement: Placement) -> None:
        """Log a dead letter that was stored."""
        put = placement.put
        group = put.topic.removeprefix(DLQ_PREFIX)
        self.counts[group, placement.consumed_from] += 1
        now_s = self._monotonic() / 1000
        episode = self._given_up.get(group)
        if episode is None:
            # Its only reminder is the count at the end of the interval
            episode = Episode(now_s, every_s=math.inf, shown=MOST_PER_GROUP)
            self._given_up[group] = episode
        if not episode.occurs(now_s):
            return
        self._log.warning(
            "dead letter: group %s gave up message %s of topic %s after %d %s; it is kept in %s",
            group,
            put.uniq_key or "without an id",
            placement.consumed_from,
            placement.attempts,
            "attempt" if placement.attempts == 1 else "attempts",
            put.topic,
        )

    async def run(self) -> None:
        """At the end of each interval, log how many were not logged individually."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            self.report_rest()

    def report_rest(self) -> None:
        """Log the dead letters that were only counted so far, and begin another interval."""
        for group, episode in self._given_up.items():
            if episode.unlogged:
                self._log.warning(
                    "dead letters: group %s gave up %d more messages within %d s",
                    group,
                    episode.unlogged,
                    INTERVAL_S,
                )
        self._given_up.clear()
