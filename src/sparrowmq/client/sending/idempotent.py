"""Sends that are stored once, no matter how often their answer is lost.

```
attempt ──┬ answered ───────── done
          ├ refused ────────── another broker, as any producer
          └ outcome unknown ── the same queue of the same broker, until it answers or time is up
```

A broker that de-duplicates the topic repeats its first answer for a message that it already has.
Other brokers do not know about it: once the outcome of an attempt is unknown, none of them is used.
"""

import asyncio
import random

from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.errors import (
    RETRIED,
    BrokerRefused,
    LimitReached,
    NoRoute,
    NotDeduplicated,
    SendFailed,
)
from sparrowmq.client.send_result import SendResult
from sparrowmq.client.sending.attempts import (
    Failures,
    RetryRules,
    SendAttempts,
    SentWatcher,
    is_certainly_not_stored,
    is_outcome_unknown,
)
from sparrowmq.client.sending.fault_avoidance import FaultAvoidance
from sparrowmq.client.sending.packing import Outgoing
from sparrowmq.client.sending.queue_choice import Chooser, SendQueues
from sparrowmq.client.sending.waiting_sends import SendTurns
from sparrowmq.net.errors import NetError, NotConnected
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.dedup import DEDUP_ATTRIBUTE, DedupRule, parse_dedup
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.headers.topics import GetTopicConfig
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.topic_config import TopicConfig

_LEAST_ATTEMPT_S = 0.5


class IdempotentAttempts(SendAttempts):
    """The attempts of a producer with `idempotent`."""

    def __init__(
        self,
        client: ClientCore,
        queues: SendQueues,
        rules: RetryRules,
        faults: FaultAvoidance | None,
        watcher: SentWatcher | None = None,
    ) -> None:
        super().__init__(client, queues, rules, faults, watcher)
        self._windows: dict[tuple[str, str], DedupRule] = {}
        """How long each broker remembers messages of a topic."""

    async def send(self, topic: str, out: Outgoing, limit_s: float) -> SendResult:
        """Try until a broker takes it. Raises NoRoute, SendFailed, BrokerRefused,
        NotDeduplicated."""
        return await self._send_once(topic, None, out, limit_s)

    async def send_to(
        self, topic: str, choose: Chooser, out: Outgoing, limit_s: float
    ) -> SendResult:
        """Like `send`, but only to the chosen queue."""
        return await self._send_once(topic, choose, out, limit_s)

    async def _send_once(
        self, topic: str, choose: Chooser | None, out: Outgoing, limit_s: float
    ) -> SendResult:
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        found = self._queues.known(topic) or await self.find(topic, limit_s)
        queue = choose(found.queues) if choose else self._next(found, None, loop.time())
        course = _Course(topic, self._rules, self._client.rng, is_chosen=choose is not None)
        turns = SendTurns(self._lines, topic, start_s, limit_s)
        outcome: SendResult | Exception | None
        failed, outcome = self._known_refusal(topic, queue.broker_name if choose else None)
        while True:
            if outcome is None:
                failed = queue.broker_name
                outcome = await self._attempt(queue, out, limit_s, course, turns)
            if isinstance(outcome, SendResult) and (outcome.is_ok or not self._rules.unless_ok):
                return outcome
            course.take(failed, outcome, turns.elapsed_s)
            brokers = None if course.stays else found.on
            pause_s = await self._pause(course.failures, turns, failed, outcome, brokers)
            if pause_s is None:
                return course.failures.end(topic, turns.elapsed_s)
            if pause_s:
                found = await self._look_again(topic, turns.left_s) or found
            if not course.stays:
                queue = self._next_unlimited(found, failed, loop.time())
            outcome = None

    async def _attempt(
        self,
        queue: MessageQueue,
        out: Outgoing,
        limit_s: float,
        course: "_Course",
        turns: SendTurns,
    ) -> SendResult | Exception:
        left_s = turns.left_s
        outcome: SendResult | Exception | None = None
        try:
            await self._check(queue, limit_s, left_s, is_open=course.is_open)
            outcome = await self._once(queue, out, _share(left_s))
        except (NetError, NoRoute, BrokerRefused, NotDeduplicated) as error:
            outcome = error
        finally:
            turns.end(queue.broker_name, outcome)
        return outcome

    # ---- whether a broker de-duplicates the topic

    async def _check(
        self, queue: MessageQueue, limit_s: float, left_s: float, *, is_open: bool
    ) -> None:
        """Raises NotDeduplicated if the broker would store a repeated message twice. Checked before
        the first send to each broker, and before each repetition, since topics change."""
        place = (queue.topic, queue.broker_name)
        rule = None if is_open else self._windows.get(place)
        if rule is None:
            try:
                rule = self._windows[place] = await self._ask_rule(queue, _share(left_s))
            except NetError as error:
                # The message itself was not sent.
                raise NotConnected(self.address(queue), str(error)) from error
        if rule.time_ms <= limit_s * 1000:
            raise NotDeduplicated(
                queue.topic,
                queue.broker_name,
                f"it remembers messages for {rule.time_ms / 1000:g} s, and they may be repeated for"
                f" {limit_s:g} s (timeout_s); make its window longer, or timeout_s shorter",
            )

    async def _ask_rule(self, queue: MessageQueue, limit_s: float) -> DedupRule:
        address = self.address(queue)
        header = GetTopicConfig(topic=queue.topic)
        response = await self._client.peers.call(address, header, timeout_s=limit_s)
        value = None
        if response.code == ResponseCode.SUCCESS:
            try:
                value = TopicConfig.from_json(response.body).attributes.get(DEDUP_ATTRIBUTE)
            except BodyError as error:
                raise NotDeduplicated(queue.topic, queue.broker_name, str(error)) from error
        if value is None:
            reason = response.remark if response.code != ResponseCode.SUCCESS else "it is off"
            raise NotDeduplicated(
                queue.topic,
                queue.broker_name,
                f"{reason}; switch it on with: sparrowmq topic update {queue.topic}"
                f" --attribute {DEDUP_ATTRIBUTE}=on, or leave idempotent out",
            )
        try:
            return parse_dedup(value)
        except ValueError:
            return DedupRule()  # the broker does the same


def _share(left_s: float) -> float:
    """The time of one attempt, so that some is left to repeat it."""
    return left_s if left_s <= _LEAST_ATTEMPT_S else max(_LEAST_ATTEMPT_S, left_s / 3)


class _Course:
    """The course of one send so far, and where it may go next."""

    def __init__(
        self, topic: str, rules: RetryRules, rng: random.Random, *, is_chosen: bool
    ) -> None:
        self.failures = Failures(
            max(1, rules.retries), rng, waits_for_limits=topic not in rules.diverted
        )
        self.is_open = False
        """Whether the outcome of any attempt is unknown."""
        self._topic = topic
        self._is_chosen = is_chosen

    @property
    def stays(self) -> bool:
        """Whether no other queue may be tried."""
        return self.is_open or self._is_chosen

    def take(self, broker_name: str, outcome: SendResult | Exception, elapsed_s: float) -> None:
        """Record an attempt that did not succeed. Raises if no repetition would change that."""
        failures = self.failures
        if isinstance(outcome, Exception) and self._is_final(outcome):
            if not self.is_open:
                raise outcome
            attempts = [*failures.attempts, (broker_name, str(outcome))]
            raise SendFailed(self._topic, attempts, elapsed_s, may_be_stored=True) from outcome
        failures.add(broker_name, outcome)
        if not isinstance(outcome, Exception) or is_outcome_unknown(outcome):
            self.is_open = True
        if self.is_open:
            failures.retries_left = max(0, failures.retries_left)  # repeats leave no second copy

    def _is_final(self, outcome: Exception) -> bool:
        if isinstance(outcome, LimitReached):
            return False  # it says when to retry
        if isinstance(outcome, BrokerRefused):
            if self._is_chosen and not self.is_open:  # no other broker may take it
                return not is_certainly_not_stored(outcome) and not is_outcome_unknown(outcome)
            return outcome.code not in RETRIED
        return isinstance(outcome, NotDeduplicated)
