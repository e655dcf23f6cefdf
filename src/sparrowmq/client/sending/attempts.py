"""Attempts: one send to one queue, and the loop that retries on another broker."""

import asyncio
import math
import random
from collections.abc import Collection
from contextlib import suppress
from typing import Protocol

import msgspec

from sparrowmq.backoff import Backoff
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.errors import (
    RETRIED,
    BrokerRefused,
    LimitReached,
    MasterAway,
    NoRoute,
    SendFailed,
)
from sparrowmq.client.send_result import STATUS_OF_CODE, SendResult
from sparrowmq.client.sending.fault_avoidance import FaultAvoidance
from sparrowmq.client.sending.packing import Outgoing
from sparrowmq.client.sending.queue_choice import Chooser, SendQueues, TopicQueues
from sparrowmq.client.sending.waiting_sends import SendLines, SendTurns
from sparrowmq.net.calls import Response
from sparrowmq.net.errors import ConnectionLost, NetError, NotConnected
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.drain import says_it_drains
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.send import SendLimited, SpecialMessageSent
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.properties import MSG_REGION, TRACE_SWITCH


def is_certainly_not_stored(outcome: Exception) -> bool:
    """Whether a failed attempt certainly left no copy of the message.

    Either it reached no broker, or the broker was too busy or forbids the send: brokers answer both
    before they store anything. Ours also answer so while they hand their role over to a slave, or
    drain. The same goes for limits.
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
"""A broker may also answer these when it, or its disk, fails after storing a message."""


def is_outcome_unknown(outcome: Exception) -> bool:
    """Whether a failed attempt may have left a copy of the message."""
    if isinstance(outcome, BrokerRefused):
        return outcome.code in _PERHAPS_STORED
    return isinstance(outcome, NetError) and not isinstance(outcome, NotConnected)


def _costs_no_retry(outcome: Exception) -> bool:
    """Whether a failed attempt can leave no copy, and may succeed at the same broker soon. A topic
    or broker that may not be written stays so: retries try other brokers, and then the send fails.
    """
    if isinstance(outcome, BrokerRefused) and outcome.code == ResponseCode.NO_PERMISSION:
        return says_it_drains(outcome.text)
    return is_certainly_not_stored(outcome)


class RetryRules(msgspec.Struct, frozen=True, kw_only=True):
    """When a send is retried."""

    retries: int
    unless_ok: bool
    """Also retry when the message is stored, but less safely than asked for."""
    idempotent: bool = False
    """If the outcome is unknown, retry on the same broker only."""
    diverted: frozenset[str] = frozenset()
    """Topics whose limits are not waited for: messages that they refuse go to another topic."""


_BACKOFF = Backoff(0.1, 1.0)
_HANDS_OVER_S = 5.0
"""A master that refuses messages because it hands over closes its connections within this time."""
_LAST_LOOK_S = 0.05
"""The last attempt of a send starts when this much time is left, or a little earlier."""


class Failures:
    """What has gone wrong so far in one send, and how long to wait before the next attempt.

    The first round over the brokers works as in Java: try the next one at once. If none of them
    took the message, the send waits for a broker to come back, longer each time. Attempts that
    certainly stored nothing do not use up a retry, since they can leave no second copy: with
    `retries` of 1 or more, a send survives any outage that is shorter than its timeout. A lack of
    permission does use one up, unless the broker drains.
    """

    def __init__(self, retries: int, rng: random.Random, *, waits_for_limits: bool = True) -> None:
        self.attempts: list[tuple[str, str]] = []
        self.retries_left = retries
        self._is_patient = retries > 0
        self._less_safe: SendResult | None = None
        self._may_be_stored = False
        self._rng = rng
        self._limited: LimitReached | None = None
        """The last attempt's refusal, if it came from a limit."""
        self._waits_for_limits = waits_for_limits
        self._refusal: LimitReached | None = None
        """The last refusal by a limit, whatever came after it."""

    def add(
        self,
        broker_name: str,
        outcome: SendResult | Exception,
        *,
        has_left: bool = False,
    ) -> None:
        """Record an attempt that did not succeed. Raises `outcome` if no retry would change it.

        With `has_left` the next attempt goes to another master, or is not made."""
        self._limited = outcome if isinstance(outcome, LimitReached) else None
        self._refusal = self._limited or self._refusal
        if self._limited is not None and self._is_patient:
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
        if not (self._is_patient and (has_left or _costs_no_retry(outcome))):
            self.retries_left -= 1

    def end(self, topic: str, elapsed_s: float) -> SendResult:
        """Give up: return a less safe result if there is one. Raises LimitReached or SendFailed
        otherwise."""
        if self._less_safe is not None:
            return self._less_safe
        limited = self._limited if self._waits_for_limits else self._refusal
        if limited is not None and not self._may_be_stored:
            raise limited
        raise SendFailed(topic, self.attempts, elapsed_s, may_be_stored=self._may_be_stored)

    @property
    def stand_in_line(self) -> bool:
        """Whether a limit refused the last attempt and is waited for, in a `SendLine`."""
        return self._limited is not None and (self._waits_for_limits or self._may_be_stored)

    def pause_s(self, brokers: int, left_s: float) -> float | None:
        """How long to wait, with `brokers` to choose from and `left_s` of the send's time left;
        None if no further attempt is allowed or worthwhile."""
        if self.retries_left < 0 or left_s <= 0:
            return None
        if self._refusal is not None and not self._waits_for_limits and not self._may_be_stored:
            return 0.0 if len({name for name, _ in self.attempts}) < brokers else None
        rounds = len(self.attempts) - brokers + 1
        if rounds <= 0:
            return 0.0
        # Use each pause twice: if pauses doubled every time, a broker that is away for 0.6 s, as
        # during a change of roles, would cost a send twice that.
        pause_s = _BACKOFF.wait_s((rounds + 1) // 2) * self._rng.uniform(0.5, 1.0)
        latest_s = left_s - _LAST_LOOK_S
        return min(pause_s, latest_s) if latest_s > _LAST_LOOK_S else None


class SentWatcher(Protocol):
    """Called for every message that a broker took, unless that broker switched tracing off."""

    def sent(
        self, out: Outgoing, address: str, cost_ms: int, result: SendResult, region: str
    ) -> None:
        """The message is stored at `address`; the send took `cost_ms`."""
        ...


class SendAttempts:
    """Sends packed messages: once to a given queue, or until a broker takes them."""

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
        self._lines = SendLines(client.rng)
        self._refused_s: dict[str, float] = {}
        """When each master last answered that it was too busy or handing over."""
        # Chosen once: an extra coroutine per send is measurable
        self._once = self._call if faults is None else self._call_timed

    async def send(self, topic: str, out: Outgoing, limit_s: float) -> SendResult:
        """Try until a broker takes it. Raises NoRoute, SendFailed, BrokerRefused."""
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        found = self._queues.known(topic) or await self.find(topic, limit_s)
        # Nearly every send ends with its first attempt: set up nothing for retries before it.
        outcome: SendResult | Exception | None = None
        if self._lines:
            failed, outcome = self._known_refusal(topic)
        if outcome is None:
            queue = self._next_unlimited(found, None, loop.time())
            failed = queue.broker_name
            left_s = limit_s - (loop.time() - start_s)
            try:
                outcome = await self._once(
                    queue, out, self._share(left_s, found, self._rules.retries)
                )
                if outcome.is_ok or not self._rules.unless_ok:
                    return outcome
            except (NetError, NoRoute, BrokerRefused) as error:
                outcome = error
        turns = SendTurns(self._lines, topic, start_s, limit_s)
        return await self._send_again(topic, out, failed, outcome, turns)

    async def _send_again(
        self,
        topic: str,
        out: Outgoing,
        failed: str,
        outcome: SendResult | Exception,
        turns: SendTurns,
    ) -> SendResult:
        """Continue after a first attempt that failed, or stored the message less safely than asked
        for."""
        loop = asyncio.get_running_loop()
        rules = self._rules
        failures = Failures(
            rules.retries, self._client.rng, waits_for_limits=topic not in rules.diverted
        )
        while True:
            self._note_missing_queue(topic, outcome)
            failures.add(failed, outcome)
            found = self._queues.known(topic) or await self.find(topic, turns.left_s)
            pause_s = await self._pause(failures, turns, failed, outcome, found.on)
            if pause_s is None:
                self._look_again_soon(topic, outcome)
                return failures.end(topic, turns.elapsed_s)
            if pause_s and _may_be_elsewhere(outcome):
                found = await self._look_again(topic, turns.left_s) or found
            queue = self._next_unlimited(found, failed, loop.time())
            failed = queue.broker_name
            left_s = self._share(turns.left_s, found, failures.retries_left)
            outcome = await self._again(queue, out, left_s, turns)
            if isinstance(outcome, SendResult) and (outcome.is_ok or not rules.unless_ok):
                return outcome

    async def _pause(
        self,
        failures: Failures,
        turns: SendTurns,
        failed: str,
        outcome: object,
        brokers: Collection[str] | None = None,
    ) -> float | None:
        """Wait before the next attempt: in a line, or for the time that is returned. None if there
        is no next attempt. Without `brokers` only the one that failed would do."""
        if failures.stand_in_line:
            return 0.0 if await turns.wait(failed, outcome, brokers) else None
        pause_s = failures.pause_s(1 if brokers is None else len(brokers), turns.left_s)
        if pause_s is not None:
            await asyncio.sleep(pause_s)
        return pause_s

    async def _again(
        self,
        queue: MessageQueue,
        out: Outgoing,
        left_s: float,
        turns: SendTurns,
        left: str | None = None,
    ) -> SendResult | Exception:
        """One attempt, but not at an address that a master has `left`. If the send had to wait for
        its turn, the next one has it now."""
        outcome: SendResult | Exception | None = None
        try:
            if left is not None and self.address(queue) == left:
                text = f"{left} has left, and no other master is there yet"
                raise MasterAway(queue.topic, text)
            outcome = await self._once(queue, out, left_s)
        except (NetError, NoRoute, BrokerRefused) as error:
            outcome = error
        finally:
            turns.end(queue.broker_name, outcome)
        return outcome

    def _known_refusal(
        self, topic: str, chosen: str | None = None
    ) -> tuple[str, LimitReached | None]:
        """What a broker, or the chosen one, has told earlier sends that are in line now."""
        line = self._lines.known(topic, chosen)
        return ("", None) if line is None else line.refusal()

    @staticmethod
    def _share(left_s: float, found: TopicQueues, retries_left: int) -> float:
        """The time of one attempt: a silent broker must leave time for the others; a single broker
        may use all of it."""
        return left_s / 2 if retries_left and found.brokers > 1 else left_s

    async def find(self, topic: str, limit_s: float) -> TopicQueues:
        """The queues of a topic, found within the time of the send. Raises NoRoute.

        A producer that retries also waits for a name server or a master that is away, as it does
        for brokers: a program's first send must not require that the servers started before it.
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
        """Send to the chosen queue. Raises NoRoute, SendFailed, BrokerRefused.

        The message is delivered to the broker once: a second copy would be out of order. While the
        broker cannot be reached, or is too busy, nothing is delivered, so that can be retried. A
        master that hands its role over refuses messages and then closes its connections: messages
        in flight to it at that moment are sent to its successor.
        """
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        found = self._queues.known(topic) or await self.find(topic, limit_s)
        queue = choose(found.queues)
        outcome: SendResult | Exception | None = None
        gone = None
        if self._lines:
            _, outcome = self._known_refusal(topic, queue.broker_name)
        if outcome is None:
            began_s = loop.time()
            try:
                return await self._once(queue, out, limit_s - (began_s - start_s))
            except (NetError, BrokerRefused, MasterAway) as error:
                outcome, gone = error, self._gone(error, began_s)
        turns = SendTurns(self._lines, topic, start_s, limit_s)
        return await self._send_to_again(queue, choose, out, outcome, gone, turns)

    async def _send_to_again(
        self,
        queue: MessageQueue,
        choose: Chooser,
        out: Outgoing,
        outcome: SendResult | Exception,
        gone: str | None,
        turns: SendTurns,
    ) -> SendResult:
        """Continue after a first attempt that failed; `gone` is a master that has left."""
        topic = queue.topic
        failures = Failures(min(self._rules.retries, 1), self._client.rng)
        left: str | None = None
        while not isinstance(outcome, SendResult):
            if not _may_send_to_again(outcome):
                self._note_missing_queue(topic, outcome)
                raise outcome
            failures.add(queue.broker_name, outcome, has_left=gone is not None)
            left = gone or left
            pause_s = None
            if failures.retries_left > 0:
                pause_s = await self._pause(failures, turns, queue.broker_name, outcome)
            if pause_s is None:
                self._look_again_soon(topic, outcome)
                return failures.end(topic, turns.elapsed_s)
            if not isinstance(outcome, LimitReached):
                now = await self._look_again(topic, turns.left_s)
                if now is not None and queue not in now.queues:
                    queue = choose(now.queues)  # it drains: the key moves, as for the next send
            began_s = asyncio.get_running_loop().time()
            outcome = await self._again(queue, out, turns.left_s, turns, left)
            gone = None if isinstance(outcome, SendResult) else self._gone(outcome, began_s)
        return outcome

    def _gone(self, error: Exception, began_s: float) -> str | None:
        """The address of a master that closed its connections after refusing messages: a message
        in flight to it since `began_s` was refused as well."""
        if isinstance(error, BrokerRefused) and not isinstance(error, LimitReached):
            self._refused_s[error.address] = asyncio.get_running_loop().time()
        if not isinstance(error, ConnectionLost) or isinstance(error, NotConnected):
            return None
        refused_s = self._refused_s.get(error.address, -math.inf)
        return error.address if refused_s <= began_s < refused_s + _HANDS_OVER_S else None

    async def _look_again(self, topic: str, left_s: float) -> TopicQueues | None:
        """The topic's queues as the name servers know them now; None if none is found.

        A broker that is away, or refuses because it is a slave now, may have a master elsewhere.
        Sends that wait together share one request.
        """
        with suppress(NoRoute, TimeoutError):
            async with asyncio.timeout(left_s):
                await self._queues.refresh(topic)
        return self._queues.known(topic)

    def _look_again_soon(self, topic: str, outcome: SendResult | Exception) -> None:
        """For the next send, when this one fails: the polls ask every 30 s only."""
        if _may_be_elsewhere(outcome):
            self._queues.refresh_soon(topic)

    def _note_missing_queue(self, topic: str, outcome: SendResult | Exception) -> None:
        """Get the route anew if the queue may be gone: a topic can be created again with fewer."""
        if isinstance(outcome, BrokerRefused) and outcome.code == ResponseCode.INVALID_PARAMETER:
            self._queues.refresh_soon(topic)

    async def send_oneway(
        self, topic: str, choose: Chooser | None, out: Outgoing, limit_s: float
    ) -> None:
        """Send once, without an answer. Raises NoRoute, SendFailed."""
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        found = self._queues.known(topic) or await self.find(topic, limit_s)
        queue = choose(found.queues) if choose else self._next(found, None, start_s)
        try:
            address = self.address(queue)
            await self._client.peers.send_oneway(address, out.for_queue(queue), out.body)
        except NoRoute:
            self._queues.refresh_soon(topic)
            raise
        except NetError as error:
            self._queues.refresh_soon(topic)
            attempts = [(queue.broker_name, str(error))]
            raise SendFailed(topic, attempts, loop.time() - start_s) from error

    async def ask(self, queue: MessageQueue, header: RequestHeader, limit_s: float) -> Response:
        """Send another kind of request to the broker of a queue, once. Raises NoRoute, SendFailed,
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
        """`_call` that also records slow and failing brokers."""
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
        client = self._client
        try:
            response = await client.peers.call(address, header, out.body, timeout_s=limit_s)
        except ConnectionLost as error:  # a timeout may only mean that the caller is impatient
            client.broker_failed(error)
            raise
        if client.outages.is_any:
            client.broker_answered(address)
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
            route = self._client.route_table.get(queue.topic)
            brokers = sorted(each.broker_name for each in route.queue_datas) if route else []
            if brokers and queue.broker_name not in brokers:
                text += f"; topic {queue.topic} is on {', '.join(brokers)}"
            raise (MasterAway if is_known else NoRoute)(queue.topic, text)
        return address

    def _next_unlimited(self, found: TopicQueues, failed: str | None, now_s: float) -> MessageQueue:
        """The next queue on a broker whose limit has not been reached as far as we know."""
        queue = self._next(found, failed, now_s)
        line = self._lines.known(queue.topic) if self._lines else None
        if line is None or not line.is_limited(queue.broker_name):
            return queue
        return found.turn.next_on(found.queues, lambda name: not line.is_limited(name)) or queue

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


def _may_send_to_again(outcome: Exception) -> bool:
    """Whether a send to one queue may be repeated, as far as its outcome says."""
    if isinstance(outcome, BrokerRefused):
        return is_certainly_not_stored(outcome)
    return isinstance(outcome, NetError | MasterAway)


def _may_be_elsewhere(outcome: SendResult | Exception) -> bool:
    """Whether to ask the name servers for the topic's brokers again after this outcome."""
    if isinstance(outcome, SendResult | LimitReached):
        return False
    return is_certainly_not_stored(outcome)


def _result(address: str, queue: MessageQueue, out: Outgoing, response: Response) -> SendResult:
    status = STATUS_OF_CODE.get(response.code)
    if status is None:
        # Apache's brokers give no time to retry: their refusal is raised at once, as in Java.
        if _RETRY_AFTER in (response.ext_fields or {}):
            wait_s = response.header(SendLimited).retry_after_ms / 1000
            raise LimitReached(address, response.code, response.remark, max(0.0, wait_s))
        raise BrokerRefused(address, response.code, response.remark)
    sent = response.header(SpecialMessageSent)
    if sent.queue_id != queue.queue_id:
        queue = msgspec.structs.replace(queue, queue_id=sent.queue_id)
    # The unique id of the stored message: another than ours if the broker had it before (dedup).
    stored_id = sent.transaction_id or ""
    is_batch = "," in out.msg_id
    return SendResult(
        status=status,
        msg_id=out.msg_id if is_batch else stored_id or out.msg_id,
        offset_msg_id=sent.msg_id,
        queue=queue,
        queue_offset=sent.queue_offset,
        transaction_id=stored_id,
        recall_handle=sent.recall_handle or "",
    )
