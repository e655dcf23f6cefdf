"""Sends that are stored once, however often their answer is lost.

```
attempt ──┬ answered ───────── done
          ├ refused ────────── another broker, as any producer
          └ outcome unknown ── the same queue of the same broker, until it answers or time is up
```

A broker that de-duplicates the topic answers a message that it has already with the first answer.
Another broker cannot know of it: once the outcome of an attempt is unknown, no other is asked.
"""

import asyncio

from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.errors import BrokerRefused, NoRoute, NotDeduplicated, SendFailed
from sparrowmq.client.send_result import SendResult
from sparrowmq.client.sending.attempts import (
    RETRIED,
    Failures,
    FaultAvoidance,
    RetryRules,
    SendAttempts,
    SentWatcher,
    is_certainly_not_stored,
    is_outcome_unknown,
)
from sparrowmq.client.sending.packing import Outgoing
from sparrowmq.client.sending.queue_choice import Chooser, SendQueues
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
        """The same at the queue that is chosen, and at no other."""
        return await self._send_once(topic, choose, out, limit_s)

    async def _send_once(
        self, topic: str, choose: Chooser | None, out: Outgoing, limit_s: float
    ) -> SendResult:
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        found = self._queues.known(topic) or await self.find(topic, limit_s)
        queue = choose(found.queues) if choose else self._next(found, None, loop.time())
        failures = Failures(max(1, self._rules.retries), self._client.rng)
        is_open = False
        while True:
            left_s = limit_s - (loop.time() - start_s)
            try:
                await self._check(queue, limit_s, left_s, is_open=is_open)
                result = await self._once(queue, out, _share(left_s))
                if result.is_ok or not self._rules.unless_ok:
                    return result
                outcome: SendResult | Exception = result
            except NotDeduplicated as error:
                if is_open:
                    raise self._unknown(topic, failures, queue, error, start_s) from error
                raise
            except (NetError, NoRoute, BrokerRefused) as error:
                outcome = error
            if is_open and _is_final(outcome):
                raise self._unknown(topic, failures, queue, outcome, start_s)
            if choose and isinstance(outcome, BrokerRefused) and _is_definite(outcome):
                raise outcome
            failures.add(queue.broker_name, outcome)
            is_open = is_open or not isinstance(outcome, Exception) or is_outcome_unknown(outcome)
            if is_open:
                failures.retries_left = max(0, failures.retries_left)  # they leave no second copy
            left_s = limit_s - (loop.time() - start_s)
            pause_s = failures.pause_s(1 if is_open or choose else found.brokers, left_s)
            if pause_s is None:
                return failures.end(topic, loop.time() - start_s)
            await asyncio.sleep(pause_s)
            if pause_s:
                found = await self._look_again(topic, limit_s - (loop.time() - start_s)) or found
            if not is_open and choose is None:
                queue = self._next(found, queue.broker_name, loop.time())

    @staticmethod
    def _unknown(
        topic: str,
        failures: Failures,
        queue: MessageQueue,
        outcome: SendResult | Exception,
        start_s: float,
    ) -> SendFailed:
        attempts = [*failures.attempts, (queue.broker_name, str(outcome))]
        elapsed_s = asyncio.get_running_loop().time() - start_s
        return SendFailed(topic, attempts, elapsed_s, may_be_stored=True)

    # ---- whether a broker de-duplicates the topic

    async def _check(
        self, queue: MessageQueue, limit_s: float, left_s: float, *, is_open: bool
    ) -> None:
        """Raises NotDeduplicated where the broker would store a repeated message twice. Asked
        before the first send to each broker, and before each repetition, since topics change."""
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
            return DedupRule()  # as the broker takes it


def _share(left_s: float) -> float:
    """The time of an attempt: some is left to repeat it."""
    return left_s if left_s <= _LEAST_ATTEMPT_S else max(_LEAST_ATTEMPT_S, left_s / 3)


def _is_final(outcome: SendResult | Exception) -> bool:
    """Whether no repetition would change the answer."""
    return isinstance(outcome, BrokerRefused) and outcome.code not in RETRIED


def _is_definite(outcome: BrokerRefused) -> bool:
    """Whether a broker refused the message, and is not just too busy for it."""
    return not is_certainly_not_stored(outcome) and not is_outcome_unknown(outcome)
