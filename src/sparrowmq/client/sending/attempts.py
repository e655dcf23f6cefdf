"""Attempts: one send to one queue, and the loop that tries again on another broker.

`FaultAvoidance` remembers slow and failing brokers, for producers with `avoid_faults`.
"""

import asyncio
import math
import random
from contextlib import suppress
from typing import Protocol

import msgspec

from sparrowmq.backoff import Backoff
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.errors import BrokerRefused, LimitReached, MasterAway, NoRoute, SendFailed
from sparrowmq.client.send_result import STATUS_OF_CODE, SendResult
from sparrowmq.client.sending.packing import Outgoing
from sparrowmq.client.sending.queue_choice import Chooser, SendQueues, TopicQueues
from sparrowmq.net.calls import Response
from sparrowmq.net.errors import ConnectionLost, NetError, NotConnected
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.send import SendLimited, SpecialMessageSent
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.properties import MSG_REGION, TRACE_SWITCH

_PAUSES = ((15_000, 30.0), (5_000, 10.0), (3_000, 6.0), (1_800, 5.0), (550, 2.0))
"""An answer that took so many milliseconds keeps its broker unused for so many seconds.

The numbers are RocketMQ's (MQFaultStrategy)."""

_FAILURE_MS = 10_000
"""A failure counts as an answer that took this long."""


def pause_s(latency_ms: float) -> float:
    """How long a broker that took so long is avoided."""
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
        # A quick answer does not end a pause: it may have been on its way before the failure
        if seconds and now_s + seconds > self._until_s.get(broker_name, now_s):
            self._until_s[broker_name] = now_s + seconds


RETRIED = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.GO_AWAY,
    }
)
"""Answers that another broker may not give; all others are raised at once."""


def is_certainly_not_stored(outcome: Exception) -> bool:
    """Whether a failed attempt can have left no copy of the message.

    It reached no broker, or one that was too busy or forbids it: brokers answer both before they
    store anything, ours also while it hands its role over to a slave, or drains. The same goes for
    limits.
    """
    if isinstance(outcome, BrokerRefused):
        return isinstance(outcome, LimitReached) or outcome.code in (
            ResponseCode.SYSTEM_BUSY,
            ResponseCode.NO_PERMISSION,
        )
    return isinstance(outcome, NotConnected | NoRoute)


_PERHAPS_STORED = frozenset(
    {ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.GO_AWAY}
)
"""Also answered when a broker fails, or its disk, after it has stored a message."""


def is_outcome_unknown(outcome: Exception) -> bool:
    """Whether a failed attempt may have left a copy of the message."""
    if isinstance(outcome, BrokerRefused):
        return outcome.code in _PERHAPS_STORED
    return isinstance(outcome, NetError) and not isinstance(outcome, NotConnected)


class RetryRules(msgspec.Struct, frozen=True, kw_only=True):
    """When a send is tried again."""

    retries: int
    unless_ok: bool
    """Also when the message is stored, but less safely than asked for."""
    idempotent: bool = False
    """Where the outcome is unknown, at the same broker only."""
    diverted: frozenset[str] = frozenset()
    """Topics whose limits are not waited for: what they refuse goes to another topic."""


_BACKOFF = Backoff(0.1, 1.0)
_CROWD = Backoff(0.05, 1.0)
"""Pauses of a send that was refused by a limit again when its time had come: others are waiting for
the same, and all of them together must not ask more often than the limit is worth."""
_HANDS_OVER_S = 5.0
"""A master that refuses messages because it hands over closes its connections within this time."""
_LAST_LOOK_S = 0.05
"""The last attempt of a send begins when so much time is left, or a little earlier."""


class Failures:
    """What went wrong so far in one send, and how long to wait before the next attempt.

    The first round over the brokers is Java's: the next one at once. If none of them took the
    message, the send waits for one that comes back, longer each time. Attempts that certainly
    stored nothing cost no retry, since they can leave no second copy of the message: an outage that
    is shorter than the time of the send is survived whatever `retries` is.
    """

    def __init__(self, retries: int, rng: random.Random, *, waits_for_limits: bool = True) -> None:
        self.attempts: list[tuple[str, str]] = []
        self.retries_left = retries
        self._is_patient = retries > 0
        self._less_safe: SendResult | None = None
        self._may_be_stored = False
        self._rng = rng
        self._limited: LimitReached | None = None
        """The last refusal, if it was one by a limit."""
        self._waits_for_limits = waits_for_limits
        self._refusal: LimitReached | None = None
        """The last one by a limit, whatever came after it."""
        self._limits: dict[str, list[float]] = {}
        """When each broker that has refused so is worth another attempt, by its refusals."""

    def add(
        self,
        broker_name: str,
        outcome: SendResult | Exception,
        now_s: float,
        *,
        has_left: bool = False,
    ) -> None:
        """An attempt did not succeed. Raises an answer that no other attempt would change.

        With `has_left` the next one goes to another master, or is not made."""
        self._limited = outcome if isinstance(outcome, LimitReached) else None
        self._refusal = self._limited or self._refusal
        if self._limited is not None and self._is_patient:
            known = self._limits.setdefault(broker_name, [])
            wait_s = self._limited.retry_after_s
            if known:
                wait_s = max(wait_s, _CROWD.wait_s(len(known)) * self._rng.uniform(0.5, 1.0))
            known.append(now_s + wait_s)
            self.attempts.append((broker_name, str(outcome)))
            return
        if isinstance(outcome, SendResult):
            self._less_safe = outcome
            self.retries_left -= 1
            return
        if isinstance(outcome, BrokerRefused) and outcome.code not in RETRIED:
            raise outcome
        self.attempts.append((broker_name, str(outcome)))
        self._may_be_stored = self._may_be_stored or is_outcome_unknown(outcome)
        if not (self._is_patient and (has_left or is_certainly_not_stored(outcome))):
            self.retries_left -= 1

    def end(self, topic: str, elapsed_s: float) -> SendResult:
        """What is left when no attempt succeeded: a less safe result, or SendFailed is raised."""
        if self._less_safe is not None:
            return self._less_safe
        limited = self._limited if self._waits_for_limits else self._refusal
        if limited is not None and not self._may_be_stored:
            raise limited
        raise SendFailed(topic, self.attempts, elapsed_s, may_be_stored=self._may_be_stored)

    def is_limited(self, broker_name: str, now_s: float) -> bool:
        """Whether a limit of this broker would refuse the message again."""
        known = self._limits.get(broker_name)
        return known is not None and now_s < known[-1]

    def pause_s(self, brokers: int, left_s: float, now_s: float) -> float | None:
        """How long to wait with `brokers` to choose from and `left_s` of the send's time left; None
        when no further attempt is allowed or worth its time."""
        if self.retries_left < 0 or left_s <= 0:
            return None
        if self._refusal is not None and not self._waits_for_limits and not self._may_be_stored:
            return 0.0 if len({name for name, _ in self.attempts}) < brokers else None
        if self._limited is not None:
            if len(self._limits) < brokers:
                return 0.0
            wait_s = max(0.0, min(known[-1] for known in self._limits.values()) - now_s)
            return wait_s if wait_s < left_s else None
        rounds = len(self.attempts) - brokers + 1
        if rounds <= 0:
            return 0.0
        # Each pause twice: doubling every time, a broker that is away for 0.6 s, as while roles
        # change, would cost a send twice that.
        pause_s = _BACKOFF.wait_s((rounds + 1) // 2) * self._rng.uniform(0.5, 1.0)
        latest_s = left_s - _LAST_LOOK_S
        return min(pause_s, latest_s) if latest_s > _LAST_LOOK_S else None


class SentWatcher(Protocol):
    """Called for every message that a broker took, unless that broker switched tracing off."""

    def sent(
        self, out: Outgoing, address: str, cost_ms: int, result: SendResult, region: str
    ) -> None:
        """It is stored at `address` and took `cost_ms`."""
        ...


class SendAttempts:
    """Sends what is packed: once to a given queue, or until a broker takes it."""

    def __init__(
        self,
        client: ClientCore,
        queues: SendQueues,
        rules: RetryRules,
        faults: FaultAvoidance | None,
        watcher: SentWatcher | None = None,
    ) -> None:
        self._client = client
        self._queues = queues
        self._rules = rules
        self._faults = faults
        self._watcher = watcher
        self._refused_s: dict[str, float] = {}
        """When each master that was too busy, or handed over, last said so."""
        # Chosen once: a layer of coroutines per send is noticeable
        self._once = self._call if faults is None else self._call_timed

    async def send(self, topic: str, out: Outgoing, limit_s: float) -> SendResult:
        """Try until a broker takes it. Raises NoRoute, SendFailed, BrokerRefused."""
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        found = self._queues.known(topic) or await self.find(topic, limit_s)
        queue = self._next(found, None, loop.time())
        left_s = limit_s - (loop.time() - start_s)
        # Nearly every send ends with its first attempt: nothing is set up for others before it.
        outcome: SendResult | Exception
        try:
            outcome = await self._once(queue, out, self._share(left_s, found, self._rules.retries))
            if outcome.is_ok or not self._rules.unless_ok:
                return outcome
        except (NetError, NoRoute, BrokerRefused) as error:
            outcome = error
        return await self._send_again(topic, out, queue.broker_name, outcome, start_s, limit_s)

    async def _send_again(
        self,
        topic: str,
        out: Outgoing,
        failed: str,
        outcome: SendResult | Exception,
        start_s: float,
        limit_s: float,
    ) -> SendResult:
        """Go on after a first attempt that failed, or stored the message less safely than asked."""
        loop = asyncio.get_running_loop()
        rules = self._rules
        failures = Failures(
            rules.retries, self._client.rng, waits_for_limits=topic not in rules.diverted
        )
        while True:
            failures.add(failed, outcome, loop.time())
            left_s = limit_s - (loop.time() - start_s)
            found = self._queues.known(topic) or await self.find(topic, left_s)
            left_s = limit_s - (loop.time() - start_s)
            pause_s = failures.pause_s(found.brokers, left_s, loop.time())
            if pause_s is None:
                return failures.end(topic, loop.time() - start_s)
            await asyncio.sleep(pause_s)
            if pause_s and _may_be_elsewhere(outcome):
                found = await self._look_again(topic, limit_s - (loop.time() - start_s)) or found
            queue = self._next_unlimited(found, failed, failures, loop.time())
            failed = queue.broker_name
            left_s = self._share(limit_s - (loop.time() - start_s), found, failures.retries_left)
            try:
                outcome = await self._once(queue, out, left_s)
                if outcome.is_ok or not self._rules.unless_ok:
                    return outcome
            except (NetError, NoRoute, BrokerRefused) as error:
                outcome = error

    @staticmethod
    def _share(left_s: float, found: TopicQueues, retries_left: int) -> float:
        """A silent broker must leave the others time; alone it may have all there is."""
        return left_s / 2 if retries_left and found.brokers > 1 else left_s

    async def find(self, topic: str, limit_s: float) -> TopicQueues:
        """Where a topic is sent to, within the time of the send. Raises NoRoute.

        A producer that retries also waits for a name server or a master that is away, as it does
        for brokers: the first send of a program must not need servers that started before it.
        """
        name_servers = self._client.name_servers
        if self._rules.retries:
            return await name_servers.patiently(
                lambda: self._queues.find(topic),
                topic=topic,
                limit_s=limit_s,
                rng=self._client.rng,
            )
        try:
            async with asyncio.timeout(limit_s):
                return await self._queues.find(topic)
        except TimeoutError:
            raise name_servers.away(f"no answer within {limit_s:g} s", topic) from None

    async def send_to(
        self, topic: str, choose: Chooser, out: Outgoing, limit_s: float
    ) -> SendResult:
        """Send to the queue that is chosen. Raises NoRoute, SendFailed, BrokerRefused.

        It is handed over once: a second copy would be out of order. While its broker cannot be
        reached, or is too busy, nothing is handed over, so that may be tried again. A master that
        hands over refuses messages, and then closes its connections: what is on its way to it in
        that moment goes to its successor.
        """
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        found = self._queues.known(topic) or await self.find(topic, limit_s)
        queue = choose(found.queues)
        failures: Failures | None = None
        left: str | None = None
        while True:
            began_s = loop.time()
            try:
                if left is not None and self.address(queue) == left:
                    raise MasterAway(topic, f"{left} has left, and no other master is there yet")
                return await self._once(queue, out, limit_s - (began_s - start_s))
            except (NetError, BrokerRefused, MasterAway) as error:
                if isinstance(error, BrokerRefused) and not is_certainly_not_stored(error):
                    raise
                failures = failures or Failures(min(self._rules.retries, 1), self._client.rng)
                gone = self._gone(error, began_s)
                failures.add(queue.broker_name, error, loop.time(), has_left=gone is not None)
                left = gone or left
                left_s = limit_s - (loop.time() - start_s)
                pause_s = None
                if failures.retries_left > 0:
                    pause_s = failures.pause_s(1, left_s, loop.time())
                if pause_s is None:
                    return failures.end(topic, loop.time() - start_s)
                await asyncio.sleep(pause_s)
                if isinstance(error, LimitReached):
                    continue
                now = await self._look_again(topic, limit_s - (loop.time() - start_s))
                if now is not None and queue not in now.queues:
                    queue = choose(now.queues)  # it drains: the key moves, as with the next send

    def _gone(self, error: Exception, began_s: float) -> str | None:
        """The address of a master that has closed its connections after it had refused messages:
        one that has been on its way to it since `began_s` was refused as well."""
        if isinstance(error, BrokerRefused):
            self._refused_s[error.address] = asyncio.get_running_loop().time()
        if not isinstance(error, ConnectionLost) or isinstance(error, NotConnected):
            return None
        refused_s = self._refused_s.get(error.address, -math.inf)
        return error.address if refused_s <= began_s < refused_s + _HANDS_OVER_S else None

    async def _look_again(self, topic: str, left_s: float) -> TopicQueues | None:
        """The topic's queues as name servers know them now, None where none is found.

        A broker that is away or refuses because it is a slave now may have a master elsewhere.
        Sends that wait together share one question.
        """
        with suppress(NoRoute, TimeoutError):
            async with asyncio.timeout(left_s):
                await self._queues.refresh(topic)
        return self._queues.known(topic)

    async def send_oneway(
        self, topic: str, choose: Chooser | None, out: Outgoing, limit_s: float
    ) -> None:
        """Send once, without an answer. Raises NoRoute, SendFailed."""
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        found = self._queues.known(topic) or await self.find(topic, limit_s)
        queue = choose(found.queues) if choose else self._next(found, None, start_s)
        address = self.address(queue)
        try:
            await self._client.peers.send_oneway(address, out.for_queue(queue), out.body)
        except NetError as error:
            attempts = [(queue.broker_name, str(error))]
            raise SendFailed(topic, attempts, loop.time() - start_s) from error

    async def ask(self, queue: MessageQueue, header: RequestHeader, limit_s: float) -> Response:
        """Ask the broker of a queue something else, once. Raises NoRoute, SendFailed,
        BrokerRefused."""
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        await self.find(queue.topic, limit_s)
        address = self.address(queue)
        left_s = limit_s - (loop.time() - start_s)
        try:
            response = await self._client.peers.call(address, header, timeout_s=left_s)
        except NetError as error:
            attempts = [(queue.broker_name, str(error))]
            raise SendFailed(queue.topic, attempts, loop.time() - start_s) from error
        if response.code != ResponseCode.SUCCESS:
            raise BrokerRefused(address, response.code, response.remark)
        return response

    async def _call_timed(self, queue: MessageQueue, out: Outgoing, limit_s: float) -> SendResult:
        """`_call` that keeps count of slow and failing brokers."""
        faults = self._faults
        assert faults is not None, "only then it is used"
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        try:
            result = await self._call(queue, out, limit_s)
        except LimitReached:
            raise  # the broker is well, and takes other messages
        except (NetError, BrokerRefused):
            faults.failed(queue.broker_name, loop.time())
            raise
        now_s = loop.time()
        faults.answered(queue.broker_name, now_s - start_s, now_s)
        return result

    async def _call(self, queue: MessageQueue, out: Outgoing, limit_s: float) -> SendResult:
        """One attempt. Raises NoRoute, BrokerRefused, NetError."""
        address = self.address(queue)
        header = out.for_queue(queue)
        watcher = self._watcher
        start_s = asyncio.get_running_loop().time() if watcher is not None else 0.0
        response = await self._client.peers.call(address, header, out.body, timeout_s=limit_s)
        result = _result(address, queue, out, response)
        if watcher is not None:
            fields = response.ext_fields or {}
            if fields.get(TRACE_SWITCH) != "false":
                region = fields.get(MSG_REGION, "")
                took_s = asyncio.get_running_loop().time() - start_s
                watcher.sent(out, address, round(took_s * 1000), result, region)
        return result

    def address(self, queue: MessageQueue) -> str:
        """The master that holds a queue. Raises NoRoute."""
        address = self._client.route_table.master(queue.broker_name)
        if address is None:
            is_known = self._client.route_table.address(queue.broker_name) is not None
            text = f"broker {queue.broker_name} has no master now"
            raise (MasterAway if is_known else NoRoute)(queue.topic, text)
        return address

    def _next_unlimited(
        self, found: TopicQueues, failed: str, failures: Failures, now_s: float
    ) -> MessageQueue:
        """The next queue on a broker whose limit is not known to be reached."""
        queue = self._next(found, failed, now_s)
        if not failures.is_limited(queue.broker_name, now_s):
            return queue
        found_on = found.turn.next_on(
            found.queues, lambda name: not failures.is_limited(name, now_s)
        )
        return found_on or queue

    def _next(self, found: TopicQueues, failed: str | None, now_s: float) -> MessageQueue:
        faults = self._faults
        if faults is not None:
            chosen = found.turn.next_on(
                found.queues, lambda name: name != failed and faults.is_available(name, now_s)
            )
            if chosen is not None:
                return chosen
        return found.turn.next(found.queues, failed)


_RETRY_AFTER = SendLimited.__struct_encode_fields__[0]


def _may_be_elsewhere(outcome: SendResult | Exception) -> bool:
    """Whether a failure is a reason to ask name servers for the topic's brokers again."""
    if isinstance(outcome, SendResult | LimitReached):
        return False
    return is_certainly_not_stored(outcome)


def _result(address: str, queue: MessageQueue, out: Outgoing, response: Response) -> SendResult:
    status = STATUS_OF_CODE.get(response.code)
    if status is None:
        # Apache's brokers say no time: their refusal is raised at once, as in Java.
        if _RETRY_AFTER in (response.ext_fields or {}):
            wait_s = response.header(SendLimited).retry_after_ms / 1000
            raise LimitReached(address, response.code, response.remark, max(0.0, wait_s))
        raise BrokerRefused(address, response.code, response.remark)
    sent = response.header(SpecialMessageSent)
    if sent.queue_id != queue.queue_id:
        queue = msgspec.structs.replace(queue, queue_id=sent.queue_id)
    return SendResult(
        status=status,
        msg_id=out.msg_id,
        offset_msg_id=sent.msg_id,
        queue=queue,
        queue_offset=sent.queue_offset,
        transaction_id=sent.transaction_id or "",
        recall_handle=sent.recall_handle or "",
    )
