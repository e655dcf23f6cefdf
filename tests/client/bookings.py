"""A transaction listener for tests."""

from typing import Any

from sparrowmq.client.sending.transactional_producer import HalfMessage, TransactionState
from sparrowmq.protocol.message_ext import MessageExt

COMMIT, ROLLBACK, UNKNOWN = TransactionState


class Bookings:
    """A listener that answers as the test chooses and records the checks."""

    def __init__(self, executed: Any = COMMIT, checked: Any = COMMIT) -> None:
        self.executed = executed
        self.checked = checked
        self.halves: list[HalfMessage] = []
        self.questions: list[MessageExt] = []

    def execute(self, half: HalfMessage) -> TransactionState:
        self.halves.append(half)
        return _told(self.executed)

    def check(self, message: MessageExt) -> TransactionState:
        self.questions.append(message)
        return _told(self.checked)


def _told(answer: Any) -> TransactionState:
    if isinstance(answer, Exception):
        raise answer
    state: TransactionState = answer
    return state
