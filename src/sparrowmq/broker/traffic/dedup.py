"""De-duplication: a message that is sent again is stored once, and gets the first answer again.

```
send ── known? ──┬ yes ── the first one's answer, when that one is safe
                 └ no ─── checks, quotas, the store ── remembered
```

Only clients' sends come through here, so retries, due delayed messages, commits and dead letters
pass: they keep the identity of a message that is already known. A message is remembered in the same
step that stores it, and only the log makes that durable: a window is read from it when a topic is
sent to for the first time (`dedup_rebuild`), and sends wait for that.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from sparrowmq.broker.traffic.dedup_answers import (
    answer_again,
    answer_batch_again,
    list_all_ids,
    offset_ids,
    stored_offsets,
)
from sparrowmq.broker.traffic.dedup_rebuild import read_window
from sparrowmq.broker.traffic.dedup_window import TopicWindow
from sparrowmq.net.routes import Handled, Reply, Request
from sparrowmq.protocol.batch import decode_columns, encode_batch
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.dedup import (
    DEDUP_ATTRIBUTE,
    MOST_IDS_TOGETHER,
    DedupRule,
    identity_of,
    parse_dedup,
)
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.headers.send import AnySend, SendBatchMessage
from sparrowmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, TIMER_TOPIC, is_system_topic
from sparrowmq.protocol.properties import (
    REAL_TOPIC,
    TIMER_DELETE_UNIQUE_KEY,
    decode_properties,
)
from sparrowmq.protocol.topic_config import TopicConfig

if TYPE_CHECKING:
    from sparrowmq.broker.broker import Broker
    from sparrowmq.broker.delivery.half_messages import PendingHalf
    from sparrowmq.broker.traffic.limited_sends import Admitted, Send

_LOOK_EVERY = 1_000
"""Messages between two checks of the total size of all windows."""
_COPIES = 64
_ANY_TIME = 2**62


def rule_of(topic: TopicConfig) -> DedupRule | None:
    """How much a topic remembers; None if it is not de-duplicated.

    A value that no operator could set, in a table from elsewhere, means the default window: reading
    it as none would store messages twice.
    """
    text = topic.attributes.get(DEDUP_ATTRIBUTE)
    if text is None or topic.topic_name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return None
    if is_system_topic(topic.topic_name):
        return None
    try:
        return parse_dedup(text)
    except ValueError:
        return DedupRule()


class _Reading(msgspec.Struct, eq=False):
    """A window that is being read from the log; `done` ends the wait of sends."""

    rule: DedupRule
    done: asyncio.Event
    forgotten: set[str]
    """Identities that became free meanwhile."""


class Dedup:
    """The windows of one broker."""

    def __init__(self, most_ids: int = MOST_IDS_TOGETHER) -> None:
        self._most_ids = most_ids
        self._windows: dict[str, TopicWindow] = {}
        self._readings: dict[str, _Reading] = {}
        self._rules: dict[str, tuple[TopicConfig, DedupRule | None]] = {}
        """The rule of each topic when it was last checked."""
        self._until_look = _LOOK_EVERY

    @property
    def windows(self) -> dict[str, TopicWindow]:
        """The windows of topics that were sent to."""
        return dict(self._windows)

    def watches(self, topic: TopicConfig) -> bool:
        """Whether sends to the topic are de-duplicated."""
        if DEDUP_ATTRIBUTE in topic.attributes:
            return self._rule(topic) is not None
        if topic.topic_name in self._rules:
            self.drop_topic(topic.topic_name)
        return False

    def _rule(self, topic: TopicConfig) -> DedupRule | None:
        known = self._rules.get(topic.topic_name)
        if known is not None and known[0] is topic:  # a changed topic is a new object
            return known[1]
        rule = rule_of(topic)
        self._rules[topic.topic_name] = (topic, rule)
        return rule

    def handle(
        self,
        broker: "Broker",
        request: Request[AnySend],
        topic: TopicConfig,
        *,
        send: "Admitted",
        again: "Send",
    ) -> Handled:
        """Handle a send to a topic that is watched; `send` stores an unknown message, unless a
        limit refuses it, and `again` starts over. Raises RequestRefused."""
        rule = self._rule(topic)
        assert rule is not None
        window = self._windows.get(topic.topic_name)
        if window is None or window.rule != rule:
            return self._handle_when_read(broker, request, topic.topic_name, rule, again)
        clock = broker.delivery.clock
        clock.now_ms()
        if not clock.is_saved:
            # Otherwise a special message would be stored later, and its duplicate meanwhile.
            return broker.saving.handle_when_saved(clock, lambda: again(broker, request, None))
        header = request.header
        if header.batch or isinstance(header, SendBatchMessage):
            return self._handle_batch(broker, request, topic, send, window)
        identity = identity_of(header.properties)
        if not identity:
            return send(broker, request, topic)
        now_ms = broker.monotonic()
        first = window.find(identity, now_ms)
        if first is not None:
            window.duplicates += 1
            return answer_again(broker, request, first)
        handled = send(broker, request, topic)
        reply = _reply(broker, request, handled)
        if reply.code is not ResponseCode.FLOW_CONTROL:  # refused by a limit, so not stored
            self._remember(window, (identity,), stored_offsets(reply), now_ms)
        return handled

    def _handle_batch(
        self,
        broker: "Broker",
        request: Request[AnySend],
        topic: TopicConfig,
        send: "Admitted",
        window: TopicWindow,
    ) -> Handled:
        """Store the unknown messages of a batch, each once."""
        try:
            columns = decode_columns(request.body)
        except BodyError:
            return send(broker, request, topic)  # which reports what is wrong with the batch
        identities = [identity_of(one.decode("utf-8", "replace")) for one in columns[2]]
        now_ms = broker.monotonic()
        known = [window.find(one, now_ms) if one else None for one in identities]
        places: dict[str, int] = {}
        new: list[int] = []
        for number, identity in enumerate(identities):
            if known[number] is None and identity not in places:
                if identity:
                    places[identity] = number
                new.append(number)
        if not new and identities:
            window.duplicates += len(identities)
            return answer_batch_again(broker, request, [one for one in known if one is not None])
        if len(new) < len(identities):
            messages = list(zip(*columns, strict=True))
            request.body = encode_batch([messages[number] for number in new])
        handled = send(broker, request, topic)
        reply = _reply(broker, request, handled)
        if reply.code is ResponseCode.FLOW_CONTROL:
            return handled
        stored = stored_offsets(reply)
        self._remember(window, [identities[number] for number in new], stored, now_ms)
        if len(new) < len(identities):
            window.duplicates += len(identities) - len(new)
            at = dict(zip(new, stored, strict=True))
            offsets = [
                at[number] if number in at else first if first is not None else at[places[identity]]
                for number, (first, identity) in enumerate(zip(known, identities, strict=True))
            ]
            list_all_ids(reply, offset_ids(broker, offsets))
        return handled

    def _remember(
        self, window: TopicWindow, identities: Iterable[str], log_offsets: list[int], now_ms: int
    ) -> None:
        for identity, log_offset in zip(identities, log_offsets, strict=True):
            if identity:
                window.add(identity, log_offset, now_ms)
        self._until_look -= len(log_offsets)
        if self._until_look <= 0:
            self._until_look = _LOOK_EVERY
            self._bound(now_ms)

    def _bound(self, now_ms: int) -> None:
        """Keep the total size of all windows within bounds: the largest one is cut."""
        if sum(map(len, self._windows.values())) <= self._most_ids:
            return
        for window in self._windows.values():
            window.expire(now_ms)
        while (more := sum(map(len, self._windows.values())) - self._most_ids) > 0:
            largest = max(self._windows.values(), key=len)
            largest.cut_to(len(largest) - max(more, len(largest) // 100))

    # ---- windows come and go

    async def _handle_when_read(
        self,
        broker: "Broker",
        request: Request[AnySend],
        topic: str,
        rule: DedupRule,
        again: "Send",
    ) -> Reply | None:
        reading = self._readings.get(topic)
        if reading is not None and reading.rule == rule:
            await reading.done.wait()
        else:
            await self._read(broker, topic, rule)
        # Start over: the topic may be a different one by now, or the reading was given up.
        handled = again(broker, request, None)
        return handled if handled is None or isinstance(handled, Reply) else await handled

    async def _read(self, broker: "Broker", topic: str, rule: DedupRule) -> None:
        """Read a window in slices. The first send that needs it does so, or another one if its
        client goes away meanwhile. Until then no client's message is stored in the topic."""
        reading = self._readings[topic] = _Reading(rule, asyncio.Event(), set())
        before = self._windows.pop(topic, None)
        try:
            window = await read_window(broker, topic, rule)
            if self._readings.get(topic) is not reading:
                return  # deleted, or the rule has changed
            for identity in reading.forgotten:
                window.forget(identity)
            if before is not None:
                window.cut, window.duplicates = before.cut, before.duplicates
            self._windows[topic] = window
            self._bound(broker.monotonic())
        finally:
            reading.done.set()
            if self._readings.get(topic) is reading:
                del self._readings[topic]

    def drop_topic(self, topic: str) -> None:
        """The topic is deleted, or no longer de-duplicated."""
        self._windows.pop(topic, None)
        self._readings.pop(topic, None)
        self._rules.pop(topic, None)

    # ---- identities that become free

    def half_ends(self, broker: "Broker", half: "PendingHalf", fields: dict[str, str]) -> None:
        """A half message is about to end without being delivered: it may be sent again."""
        topic = fields.get(REAL_TOPIC, "")
        identity = _identity_in(fields)
        window = self._windows.get(topic)
        if window is not None:
            first = window.find(identity, broker.monotonic())
            record = None if first is None else broker.store.read_record(first)
            # Not if the identity belongs to another one, sent after this one was forgotten.
            if record is not None and broker.delivery.halves.get(record.queue_offset) is half:
                window.forget(identity)
        elif topic in self._readings:
            self._readings[topic].forgotten.add(identity)

    def recalled(self, broker: "Broker", topic: str, msg_id: str) -> None:
        """A timed message is taken back: it may be sent again."""
        window, reading = self._windows.get(topic), self._readings.get(topic)
        if window is None and reading is None:
            return
        store = broker.store
        for offset in store.find_by_key(TIMER_TOPIC, msg_id, 0, _ANY_TIME, _COPIES).log_offsets:
            record = store.read_record(offset)
            fields = {} if record is None else decode_properties(record.properties)
            if fields.get(REAL_TOPIC) != topic or TIMER_DELETE_UNIQUE_KEY in fields:
                continue
            identity = _identity_in(fields)
            if reading is not None:
                reading.forgotten.add(identity)
            if window is not None and window.find(identity, broker.monotonic()) == offset:
                window.forget(identity)


def _identity_in(fields: dict[str, str]) -> str:
    return identity_of("".join(f"{name}\x01{value}\x02" for name, value in fields.items()))


def _reply(broker: "Broker", request: Request[AnySend], handled: Handled) -> Reply:
    """The answer to a stored send, even if the sender is still waiting for it."""
    if isinstance(handled, Reply):
        return handled
    reply = broker.durability.waiting_reply(request)
    assert reply is not None, "a send stores at once, or raises"
    return reply
