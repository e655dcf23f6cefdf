"""Transactions: a half message, a local transaction, and one word that makes it visible or not."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from enum import Enum
from typing import Any, Protocol

import msgspec

from sparrowmq.client.send_result import SendResult
from sparrowmq.protocol.message import Message
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.sys_flag import (
    TRANSACTION_COMMIT,
    TRANSACTION_NONE,
    TRANSACTION_ROLLBACK,
)


class TransactionState(Enum):
    """How a local transaction ended; the value is what the wire carries."""

    COMMIT = TRANSACTION_COMMIT
    """Consumers get the message."""
    ROLLBACK = TRANSACTION_ROLLBACK
    """Nobody ever gets it."""
    UNKNOWN = TRANSACTION_NONE
    """Not known yet: the broker asks later."""


class HalfMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What a local transaction is about."""

    message: Message
    transaction_id: str
    """The message's unique id; `check` gets it as `message.transaction_id`."""
    argument: Any = None
    """Whatever was passed to `send_in_transaction`."""


class TransactionListener(Protocol):
    """The application's part. Both may be plain (they run in a thread) or async.

    Raising counts as UNKNOWN and is logged.
    """

    def execute(self, half: HalfMessage) -> TransactionState | Awaitable[TransactionState]:
        """Do the local transaction; the half message is stored and nobody sees it yet."""
        ...

    def check(self, message: MessageExt) -> TransactionState | Awaitable[TransactionState]:
        """Look up how the transaction ended. Asked when the broker did not hear of its end,
        perhaps of another process of the group than the one that sent the message."""
        ...


class TransactionResult(SendResult, frozen=True, kw_only=True):
    """Where the half message is and how its transaction ended."""

    state: TransactionState


async def settled(outcome: object) -> TransactionState:
    """What a listener returned, awaited if need be. Raises TypeError for anything else."""
    if inspect.isawaitable(outcome):
        outcome = await outcome
    if not isinstance(outcome, TransactionState):
        text = f"the transaction listener returned {outcome!r}, must be a TransactionState"
        raise TypeError(text)
    return outcome
