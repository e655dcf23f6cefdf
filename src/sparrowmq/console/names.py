"""Names of topics and groups, fetched at most every ten seconds, and what kind each is."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from sparrowmq.admin.admin import Admin
from sparrowmq.clock import Clock
from sparrowmq.protocol.names import (
    is_dlq_topic,
    is_retry_topic,
    is_system_topic,
)

T = TypeVar("T")
_KEPT_MS = 10_000


class Kept(Generic[T]):
    """A cached answer, fetched again when it is old."""

    def __init__(self, clock: Clock, ask: Callable[[], Awaitable[T]]) -> None:
        self._clock = clock
        self._ask = ask
        self._value: T | None = None
        self._asked_ms = 0

    async def get(self) -> T:
        """The answer. Raises what fetching raises."""
        if self._value is None or self._clock() - self._asked_ms > _KEPT_MS:
            value = await self._ask()
            self._value, self._asked_ms = value, self._clock()
        return self._value

    def forget(self) -> None:
        """Drop the cached answer after a change, so that the next call fetches."""
        self._value = None


class ClusterNames:
    """The lists of names that search and pages use."""

    def __init__(self, admin: Admin, clock: Clock) -> None:
        self._admin = admin
        self._own: frozenset[str] = frozenset()
        self._topics = Kept(clock, self._ask_topics)
        self._groups = Kept(clock, self._ask_groups)

    async def topics(self) -> list[str]:
        """All topics, including RocketMQ's own."""
        return await self._topics.get()

    async def groups(self) -> list[str]:
        """All consumer groups, including those of RocketMQ's tools."""
        return await self._groups.get()

    def forget(self) -> None:
        """Drop both lists after something was created or deleted."""
        self._topics.forget()
        self._groups.forget()

    async def _ask_topics(self) -> list[str]:
        info = await self._admin.cluster_info()
        self._own = frozenset({*info.cluster_addr_table, *info.broker_addr_table})
        return await self._admin.topics()

    async def _ask_groups(self) -> list[str]:
        return list(await self._admin.groups())

    def kind_of(self, topic: str) -> str:
        """`retry`, `dead letters`, `system`, or empty for a topic of applications."""
        if is_retry_topic(topic):
            return "retry"
        if is_dlq_topic(topic):
            return "dead letters"
        is_system = topic in self._own or is_system_topic(topic)
        return "system" if is_system or topic.endswith("_REPLY_TOPIC") else ""

    def is_plain_topic(self, topic: str) -> bool:
        """Whether applications use it by its name."""
        return not self.kind_of(topic)
