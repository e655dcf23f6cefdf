"""The transactional producer: a message becomes visible if, and only if, a local transaction
commits.

half message ── execute ──┬ COMMIT ──── visible
  (stored)                ├ ROLLBACK ── gone
                          └ UNKNOWN, or no report ── the broker asks: check ── the same again
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from enum import Enum
from typing import Any, Literal, Protocol, Unpack

import msgspec

from sparrowmq.client.argument_checks import check_function, check_kind, member_of
from sparrowmq.client.errors import NotStarted
from sparrowmq.client.failures import ends_caller
from sparrowmq.client.handler_threads import HandlerThreads
from sparrowmq.client.send_result import SendResult
from sparrowmq.client.sending.producer import Producer, ProducerSettings
from sparrowmq.client.setting_names import checks_setting_names
from sparrowmq.net.errors import NetError
from sparrowmq.net.workers import Workers
from sparrowmq.protocol import properties as names
from sparrowmq.protocol.headers.transactions import CheckTransactionState, EndTransaction
from sparrowmq.protocol.ids import OffsetId
from sparrowmq.protocol.message import Message
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.sys_flag import (
    TRANSACTION_COMMIT,
    TRANSACTION_NONE,
    TRANSACTION_ROLLBACK,
)
from sparrowmq.protocol.trace import TracedMessage


class TransactionState(Enum):
    """How a local transaction ended; the value is what the wire carries."""

    COMMIT = TRANSACTION_COMMIT
    """Consumers get the message."""
    ROLLBACK = TRANSACTION_ROLLBACK
    """No consumer ever gets the message."""
    UNKNOWN = TRANSACTION_NONE
    """Not known yet: the broker will ask later."""


StateName = Literal["COMMIT", "ROLLBACK", "UNKNOWN"]
Outcome = TransactionState | StateName
"""What a listener returns: the state, or its name."""


class HalfMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The stored half message that `execute` gets."""

    message: Message
    transaction_id: str
    """The message's unique id; `check` finds it in `message.transaction_id`."""
    argument: Any = None
    """Whatever was passed to `send_in_transaction`."""


class TransactionListener(Protocol):
    """The application's part of a transaction. Both methods may be plain (run in a thread) or
    async.

    An exception counts as UNKNOWN and is logged.
    """

    def execute(self, half: HalfMessage) -> Outcome | Awaitable[Outcome]:
        """Run the local transaction. The half message is stored, but no consumer sees it yet."""
        ...

    def check(self, message: MessageExt) -> Outcome | Awaitable[Outcome]:
        """Look up how the transaction ended. Called when the broker got no report of its end, and
        possibly in another process of the group than the one that sent the message."""
        ...


class TransactionResult(SendResult, frozen=True, kw_only=True):
    """Where the half message is and how its transaction ended."""

    state: TransactionState


async def settled(outcome: object) -> TransactionState:
    """The state that a listener returned, awaited if necessary. Raises ValueError for anything
    else."""
    if inspect.isawaitable(outcome):
        outcome = await outcome
    return member_of("the answer of the transaction listener", outcome, TransactionState)


_THREADS = 8
_STOP_WITHIN_S = 30.0
_JAVA_STATES = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}


@checks_setting_names
class TransactionalProducer(Producer):
    """Sends messages in transactions.

        async with TransactionalProducer("orders-svc", Bookings()) as producer:
            result = await producer.send_in_transaction(Message("orders", b"…", keys="o-1"))

    Takes the settings of Producer. If the listener's methods are plain functions, they run in
    `threads`.
    """

    def __init__(
        self,
        group: str,
        listener: TransactionListener,
        *,
        threads: Workers | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        super().__init__(group, **settings)
        if isinstance(listener, type):
            name = listener.__name__
            raise ValueError(f"listener is the class {name}, must be an object of it: {name}()")
        for function in ("execute", "check"):
            check_function(f"{function} of the listener", getattr(listener, function, None))
        self._listener = listener
        self._threads: Workers | None = threads
        self._own_threads: HandlerThreads | None = None

    async def start(self) -> None:
        """Start the producer; a second producer of the same group in one client is refused."""
        await super().start()
        if self._threads is None:
            name = f"transactions of {self.group}"
            self._threads = self._own_threads = HandlerThreads(_THREADS, name)

    async def stop(self) -> None:
        """Unregister. The broker asks other producers of the group about transactions that have not
        ended. Waits at most 30 s for listener functions that are still running."""
        try:
            await super().stop()
            if self._own_threads is not None:
                await self._finish(self._own_threads)
        finally:
            if self._own_threads is not None:
                self._own_threads.abandon()
                self._own_threads = self._threads = None

    async def _finish(self, threads: HandlerThreads) -> None:
        try:
            async with asyncio.timeout(_STOP_WITHIN_S):
                await asyncio.get_running_loop().run_in_executor(None, threads.close)
        except TimeoutError:
            self._client.log.warning(
                "a transaction listener of %s did not return within %g s: it continues until it"
                " returns or the process ends, and the broker asks how its transaction ended",
                self.group,
                _STOP_WITHIN_S,
            )

    async def send_in_transaction(
        self, message: Message, argument: Any = None, *, timeout_s: float | None = None
    ) -> TransactionResult:
        """Store a half message, run the listener's `execute`, report the outcome to the broker.

        A half message that is stored less safely than asked for is rolled back without calling
        `execute`. Messages go to the queues in turn; a sharding key chooses none. Raises ValueError
        for a delayed message, and whatever `send` raises; then
        `execute` was not called.
        """
        self._check_started()
        check_kind("message", message, Message)
        if message.delay_level or message.delay_ms is not None or message.deliver_time_ms:
            raise ValueError("a message cannot be delayed and in a transaction, choose one")
        system = {names.TRANSACTION_PREPARED: "true", names.PRODUCER_GROUP: self.group}
        limit_s = self._limit_s(timeout_s)
        sent = await self._sender.send_named(message, None, limit_s, system)
        state = TransactionState.ROLLBACK
        if sent.is_ok:
            half = HalfMessage(message=message, transaction_id=sent.msg_id, argument=argument)
            state = await self._ask_listener("execute", half, sent.msg_id)
        await self._end(message, sent, state)
        fields = msgspec.structs.asdict(sent) | {"transaction_id": sent.msg_id}
        return TransactionResult(**fields, state=state)

    async def _check_transaction(
        self, message: MessageExt, question: CheckTransactionState
    ) -> EndTransaction:
        """Answer a broker that asks how a transaction ended."""
        state = await self._ask_listener("check", message, message.msg_id)
        host, port = message.store_host
        self._trace_end(message, message.msg_id, f"{host}:{port}", state, is_answer=True)
        return EndTransaction(
            producer_group=self.group,
            tran_state_table_offset=question.tran_state_table_offset,
            commit_log_offset=question.commit_log_offset,
            commit_or_rollback=state.value,
            from_transaction_check=True,
            msg_id=message.msg_id,
            transaction_id=question.transaction_id,
            topic=question.topic,
        )

    async def _ask_listener(self, what: str, subject: Any, msg_id: str) -> TransactionState:
        function = getattr(self._listener, what)
        try:
            if asyncio.iscoroutinefunction(function):
                return await settled(function(subject))
            if self._threads is None:
                raise NotStarted("the producer was stopped before the listener was asked")
            return await settled(await self._threads.run(function, subject))
        except BaseException as error:
            if ends_caller(error):
                raise
            # It is unknown whether the local transaction happened: the broker will ask
            text = "%s of group %s failed for transaction %s: %r"
            self._client.log.error(text, what, self.group, msg_id, error, exc_info=error)
            return TransactionState.UNKNOWN

    async def _end(self, message: Message, sent: SendResult, state: TransactionState) -> None:
        header = EndTransaction(
            producer_group=self.group,
            tran_state_table_offset=sent.queue_offset,
            commit_log_offset=OffsetId.parse(sent.offset_msg_id).log_offset,
            commit_or_rollback=state.value,
            msg_id=sent.msg_id,
            transaction_id=sent.transaction_id or None,
            topic=message.topic,
        )
        address = self._client.route_table.master(sent.queue.broker_name)
        if address is None:
            self._client.log.warning("no master of %s to end %s", sent.queue.broker_name, header)
            return
        self._trace_end(message, sent.msg_id, address, state, is_answer=False)
        try:
            await self._client.peers.send_oneway(address, header)
        except NetError as error:
            # Not raised: the local transaction stands, and the broker will ask
            self._client.log.warning("end of transaction %s not reported: %s", sent.msg_id, error)

    def _trace_end(
        self,
        message: Message | MessageExt,
        msg_id: str,
        address: str,
        state: TransactionState,
        *,
        is_answer: bool,
    ) -> None:
        trace = self._sender.trace
        if trace is None:
            return
        traced = TracedMessage(
            time_ms=self._client.clock(),
            group=self.group,
            topic=message.topic,
            msg_id=msg_id,
            tags=message.tags,
            keys=" ".join(message.keys),
            store_host=address,
        )
        trace.ended(traced, _JAVA_STATES[state], is_answer=is_answer)
