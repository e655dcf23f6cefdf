"""Diverts messages that a limit refuses to the topic that the producer named (`when_refused`).

```
send ─▶ orders ─┬ a broker takes it ──────────── done
                └ a limit of each refuses it ──▶ orders-overflow, with DIVERTED_FROM=orders
```

Only messages that are certainly not stored are diverted. Messages with a chosen queue, half
messages, requests and one-way sends cannot be diverted; they are refused before anything is sent.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from msgspec.structs import replace

from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.errors import LimitReached, NoRoute, counted
from sparrowmq.client.send_result import SendResult
from sparrowmq.client.sending.attempts import SendAttempts
from sparrowmq.client.sending.packing import Outgoing
from sparrowmq.client.sending.queue_choice import Chooser
from sparrowmq.episodes import Episode
from sparrowmq.protocol.batch import decode_columns, encode_batch
from sparrowmq.protocol.names import check_topic, is_dlq_topic, is_retry_topic, is_system_topic
from sparrowmq.protocol.properties import DIVERTED_FROM, TRANSACTION_PREPARED

_QUIET_S = 10.0
"""A topic that has taken everything for this long counts as taking messages again."""


def check_when_refused(given: object) -> dict[str, str]:
    """The topics of the setting. Raises ValueError if they make no sense."""
    form = 'must be a mapping such as {"orders": "orders-overflow"}'
    if not isinstance(given, Mapping):
        raise ValueError(f"when_refused is {given!r}, {form}")
    for topic, other in given.items():
        for name in (topic, other):
            if not isinstance(name, str):
                raise ValueError(f"when_refused has the topic {name!r}, {form}")
            check_topic(name)
            if is_retry_topic(name) or is_dlq_topic(name) or is_system_topic(name):
                raise ValueError(
                    f"when_refused names {name}, which is not a topic of a program's own"
                )
        if other in given:
            where = "itself" if other == topic else f"{other}, which has a diversion too"
            raise ValueError(f"when_refused diverts {topic} to {where}: a message is diverted once")
    return dict(given)


def room_for_origin(topic: str) -> int:
    """How many bytes a message grows by when it is diverted from this topic."""
    return len(_origin(topic))


def _origin(topic: str) -> str:
    return f"{DIVERTED_FROM}\x01{topic}\x02"


def _moved(out: Outgoing, topic: str, other: str) -> Outgoing:
    """The same message or batch, ids and all, for the other topic."""
    header, body, origin = out.header, out.body, _origin(topic)
    if header.batch:
        # Brokers read the properties of each message in a batch, not those of the batch itself.
        flags, bodies, properties = decode_columns(body)
        marked = [each + origin.encode() for each in properties]
        body = encode_batch(zip(flags, bodies, marked, strict=True))
        return Outgoing(replace(header, topic=other), body, out.msg_id)
    header = replace(header, topic=other, properties=header.properties + origin)
    return Outgoing(header, body, out.msg_id)


@dataclass(slots=True)
class _Refusing:
    """A topic that is refusing messages, for the log."""

    episode: Episode
    last_s: float


class DivertingAttempts:
    """Wraps SendAttempts and diverts. It is a separate class so that producers without
    `when_refused` do not even check for it."""

    def __init__(
        self, attempts: SendAttempts, when_refused: Mapping[str, str], client: ClientCore
    ) -> None:
        self._attempts = attempts
        self._others = when_refused
        self._client = client
        self._log = client.log
        self._refusing: dict[str, _Refusing] = {}
        self.counts = dict.fromkeys(when_refused, 0)
        """How many messages of each topic were diverted."""

    async def send(self, topic: str, out: Outgoing, limit_s: float) -> SendResult:
        """Like SendAttempts.send, but diverts instead of waiting for a limit."""
        other = self._others.get(topic)
        if other is None:
            return await self._attempts.send(topic, out, limit_s)
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        try:
            result = await self._attempts.send(topic, out, limit_s)
        except LimitReached as refusal:
            await self._check_exists(topic, other)
            left_s = limit_s - (loop.time() - start_s)
            if left_s <= 0:
                raise
            # If this raises, the refusal is its context, so that both are reported.
            result = await self._attempts.send(other, _moved(out, topic, other), left_s)
            self._note(topic, other, out.msg_id.count(",") + 1, refusal, loop.time())
            return replace(result, diverted_from=topic)
        if self._refusing:
            self._note_taken(topic, loop.time())
        return result

    async def _check_exists(self, topic: str, other: str) -> None:
        """Raises NoRoute for a topic that does not exist: brokers would create it, for a name
        with a typo too, and nothing reads it."""
        if await self._client.route_table.fetch(other) is None:
            raise NoRoute(
                other,
                f"it does not exist, and when_refused names it for what topic {topic} refuses;"
                f" create it with: sparrowmq topic create {other}",
            )

    async def send_to(
        self, topic: str, choose: Chooser, out: Outgoing, limit_s: float
    ) -> SendResult:
        """Like SendAttempts.send_to. Raises ValueError if the topic is diverted."""
        self.refuse(topic, "a message with a key, sharding key, queue or selector", "an order")
        return await self._attempts.send_to(topic, choose, out, limit_s)

    async def send_oneway(
        self, topic: str, choose: Chooser | None, out: Outgoing, limit_s: float
    ) -> None:
        """Like SendAttempts.send_oneway. Raises ValueError if the topic is diverted."""
        self.refuse(topic, "a one-way send", "no answer that would say it was refused")
        await self._attempts.send_oneway(topic, choose, out, limit_s)

    def check_named(self, topic: str, system: Mapping[str, str]) -> None:
        """Raises ValueError for half messages and requests to a topic that is diverted."""
        if TRANSACTION_PREPARED in system:
            self.refuse(topic, "a half message", "a transaction of this topic")
        self.refuse(topic, "a request", "a consumer of this topic that answers it")

    def refuse(self, topic: str, what: str, has: str) -> None:
        """Raises ValueError for a message that cannot be diverted, if the topic is diverted."""
        other = self._others.get(topic)
        if other is not None:
            _raise(topic, other, what, has)

    def log_rest(self) -> None:
        """The producer stops: log what has not been logged yet."""
        for topic, refusing in self._refusing.items():
            if refusing.episode.unlogged:
                self._log.warning(
                    "%s of topic %s went to %s in all",
                    counted(self.counts[topic], "message"),
                    topic,
                    self._others[topic],
                )
        self._refusing.clear()

    def _note(
        self, topic: str, other: str, count: int, refusal: LimitReached, now_s: float
    ) -> None:
        self.counts[topic] += count
        refusing = self._refusing.get(topic)
        if refusing is None:
            refusing = self._refusing[topic] = _Refusing(Episode(now_s), now_s)
        refusing.last_s = now_s
        if not refusing.episode.occurs(now_s):
            return
        if refusing.episode.is_new:
            text = "topic %s refuses messages, which go to %s: %s"
            self._log.warning(text, topic, other, refusal.text)
            return
        self._log.warning(
            "topic %s refuses messages for %.0f s now, %d went to %s so far: %s",
            topic,
            refusing.episode.lasted_s(now_s),
            self.counts[topic],
            other,
            refusal.text,
        )

    def _note_taken(self, topic: str, now_s: float) -> None:
        refusing = self._refusing.get(topic)
        if refusing is not None and now_s - refusing.last_s >= _QUIET_S:
            del self._refusing[topic]
            text = "topic %s takes messages again; %d went to %s so far"
            self._log.warning(text, topic, self.counts[topic], self._others[topic])


def _raise(topic: str, other: str, what: str, has: str) -> NoReturn:
    raise ValueError(
        f"{what} to topic {topic} cannot be diverted to {other} (when_refused): it has {has};"
        f" send it with a producer that does not divert {topic}"
    )
