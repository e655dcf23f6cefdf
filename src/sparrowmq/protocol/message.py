"""Messages that users build, and the queues they go to."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack

import msgspec
from msgspec import UNSET, UnsetType, field
from msgspec.structs import force_setattr

from sparrowmq.protocol import properties as names
from sparrowmq.protocol.delay import MAX_DELAY_LEVEL
from sparrowmq.protocol.names import send_fault
from sparrowmq.protocol.properties import KEY_SEPARATOR, SYSTEM_PROPERTIES, format_properties
from sparrowmq.protocol.typed_bodies import json_body

MAX_BODY_BYTES = 4 * 1024 * 1024
"""RocketMQ's default; brokers and producers may be configured for less."""

_SURELY_SMALL = 4_000
"""Up to this many characters, properties need no exact count: 32,767 bytes are allowed."""

_topic_fault = lru_cache(maxsize=1024)(send_fault)


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """Queue `queue_id` of `topic` on the brokers named `broker_name`.

    Sorted by topic, broker name and id: every member of a group sorts the same way, so that each
    can work out its share independently.
    """

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        # Consistent hashing uses this text as the queue's key, so it is Java's toString
        return (
            f"MessageQueue [topic={self.topic}, brokerName={self.broker_name}, "
            f"queueId={self.queue_id}]"
        )

    @property
    def place(self) -> str:
        """Broker and id, as people read and type them: `broker-a/3`."""
        return f"{self.broker_name}/{self.queue_id}"


class MessageSettings(TypedDict, total=False):
    """The optional fields of a message besides topic and body; `Message` documents them."""

    tags: str | None
    keys: str | Sequence[str]
    properties: Mapping[str, str]
    flag: int
    delay_level: int
    delay_ms: int | None
    deliver_time_ms: int | None
    delay: timedelta | None
    deliver_at: datetime | None
    sharding_key: str | None
    wait_store_ok: bool


class _TopicAndBody(msgspec.Struct, frozen=True):
    topic: str
    body: bytes


class Message(_TopicAndBody, frozen=True, kw_only=True, repr_omit_defaults=True):
    """What a producer sends.

    Checked when it is built: raises ValueError stating what is wrong and what is allowed.
    """

    tags: str | None = None
    """One tag, which subscriptions choose by."""
    keys: str | Sequence[str] = ()
    """What the message can be found by; a text may hold several, separated by blanks."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """The application's own properties."""
    flag: int = 0
    """A number RocketMQ only carries along."""
    delay_level: int = 0
    """Deliver after the delay of this level (1 = 1 s … 18 = 2 h); 0 delivers at once."""
    delay_ms: int | None = None
    """Deliver after this many milliseconds, at most 3 days."""
    deliver_time_ms: int | None = None
    """Deliver at this time (ms since 1970), at most 3 days ahead."""
    delay: timedelta | None = None
    """`delay_ms` as a duration; the message has it as `delay_ms`."""
    deliver_at: datetime | None = None
    """`deliver_time_ms` as a date with a time zone; the message has it as `deliver_time_ms`."""
    sharding_key: str | None = None
    """Messages with one key go to one queue and stay in order."""
    wait_store_ok: bool = True
    """False: the send may be answered before the message is flushed or replicated."""
    if not TYPE_CHECKING:  # so that editors do not suggest it
        # A common mistake, since subscriptions and commands say "tag". A metaclass that
        # suggests names for any mistyped field takes 1 µs, more than the rest of a message.
        tag: UnsetType = UNSET

    def __post_init__(self) -> None:
        keys = self.keys
        if self.tag is not UNSET:  # type: ignore[attr-defined]  # see the field
            raise TypeError("Message has no field named tag; did you mean tags?")
        if self.delay is not None or self.deliver_at is not None:
            self._take_times()
        try:
            fault = self._fault()
            parts = tuple(keys.split() if isinstance(keys, str) else keys)
        except (AttributeError, TypeError) as error:  # types are only checked now: it costs time
            raise ValueError(_kind_fault(self) or str(error)) from error
        if fault is not None:
            raise ValueError(fault)
        force_setattr(self, "keys", parts)
        if self.properties:
            force_setattr(self, "properties", dict(self.properties))
            if sum(map(len, chain.from_iterable(self.properties.items()))) > _SURELY_SMALL:
                format_properties(wire_properties(self))

    @classmethod
    def json(cls, topic: str, value: object, **settings: Unpack[MessageSettings]) -> Self:
        """A message whose body is a value as JSON: dicts, lists, dataclasses, msgspec structs,
        pydantic models. `settings` are the fields of a message, such as `tags` and `keys`.

        Raises ValueError for what cannot be written as JSON, and as the constructor does.
        """
        return _made(cls, topic, json_body(value), settings)

    @classmethod
    def text(cls, topic: str, text: str, **settings: Unpack[MessageSettings]) -> Self:
        """A message whose body is a text as UTF-8."""
        if not isinstance(text, str):
            raise ValueError(f"text is {type(text).__name__}, must be str")
        return _made(cls, topic, text.encode(), settings)

    def _take_times(self) -> None:
        """Convert durations and dates to the milliseconds that are sent. Raises ValueError."""
        delay: object = self.delay
        at: object = self.deliver_at
        given = (delay, at, self.delay_ms, self.deliver_time_ms, self.delay_level or None)
        if sum(each is not None for each in given) > 1:
            raise ValueError(_ONE_DELAY)
        if delay is not None:
            if not isinstance(delay, timedelta):
                raise ValueError(f"delay is {delay!r}, must be a timedelta; delay_ms takes numbers")
            force_setattr(self, "delay_ms", delay // timedelta(milliseconds=1))
        if at is not None:
            if not isinstance(at, datetime) or at.tzinfo is None:
                raise ValueError(f"deliver_at is {at!r}, must be a datetime with a time zone")
            force_setattr(self, "deliver_time_ms", round(at.timestamp() * 1000))
        force_setattr(self, "delay", None)
        force_setattr(self, "deliver_at", None)

    def _fault(self) -> str | None:
        return (
            _topic_fault(self.topic)
            or _body_fault(self.body)
            or _tags_fault(self.tags)
            or _keys_fault(self.keys)
            or (_properties_fault(own) if (own := self.properties) or own is None else None)
            or _delay_fault(self)
            or _sharding_key_fault(self.sharding_key)
            or _flag_fault(self.flag)
        )


def wire_properties(message: Message) -> dict[str, str]:
    """The user's and system properties together, as they are sent; a new dict for each call."""
    properties = dict(message.properties)
    if message.keys:
        properties[names.KEYS] = KEY_SEPARATOR.join(message.keys)
    if message.tags:
        properties[names.TAGS] = message.tags
    properties[names.WAIT_STORE_OK] = "true" if message.wait_store_ok else "false"
    if message.delay_level:
        properties[names.DELAY_LEVEL] = str(message.delay_level)
    if message.delay_ms is not None:
        properties[names.TIMER_DELAY_MS] = str(message.delay_ms)
    if message.deliver_time_ms is not None:
        properties[names.TIMER_DELIVER_MS] = str(message.deliver_time_ms)
    if message.sharding_key is not None:
        properties[names.SHARDING_KEY] = message.sharding_key
    return properties


M = TypeVar("M", bound=Message)


def _made(kind: type[M], topic: str, body: bytes, settings: MessageSettings) -> M:
    """Build a message; a mistyped field raises a TypeError that suggests the right one. The
    constructor itself cannot do so: see the field `tag`."""
    try:
        return kind(topic, body, **settings)
    except TypeError:
        known = list(MessageSettings.__annotations__)
        for name in settings.keys() - set(known):
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"its fields are {', '.join(known)}"
            raise TypeError(f"Message has no field named {name}; {hint}") from None
        raise


_ONE_DELAY = (
    "delay_level, delay, delay_ms, deliver_at and deliver_time_ms cannot be combined, give one"
)
_TEXT: tuple[type, ...] = (str, type(None))
_NUMBER: tuple[type, ...] = (int, type(None))
_KINDS: dict[str, tuple[type, ...]] = {
    "topic": (str,),
    "tags": _TEXT,
    "keys": (str, Sequence),
    "properties": (Mapping,),
    "flag": (int,),
    "delay_level": (int,),
    "delay_ms": _NUMBER,
    "deliver_time_ms": _NUMBER,
    "sharding_key": _TEXT,
}


def _kind_fault(message: Message) -> str | None:
    for name, kinds in _KINDS.items():
        value = getattr(message, name)
        if not isinstance(value, kinds):
            wanted = " or ".join(kind.__name__ for kind in kinds if kind is not type(None))
            return f"{name} is {value!r}, must be {wanted}"
    return None


def _body_fault(body: object) -> str | None:
    if not isinstance(body, bytes):
        fault = f"body is {type(body).__name__}, must be bytes"
        if isinstance(body, str):
            return f"{fault}; Message.text takes a str"
        if isinstance(body, dict | list):
            return f"{fault}; Message.json takes a value for JSON"
        return fault
    if not body:
        return "body is empty, must have at least 1 byte"
    return None


def _tags_fault(tags: str | None) -> str | None:
    if tags is None or (tags.isalnum() and tags.isascii()):
        return None
    if not tags or tags != tags.strip():
        return f"tag {tags!r} is blank or has blanks around it, no subscription would match it"
    if "||" in tags or tags == "*":
        return f"tag {tags!r} reads like a subscription, a message has one tag"
    return _separator_fault("tag", tags)


def _keys_fault(keys: str | Sequence[Any]) -> str | None:
    if not keys:
        return None
    if isinstance(keys, str):
        return _separator_fault("key", keys)
    for key in keys:
        if not isinstance(key, str):
            return f"key {key!r} is {type(key).__name__}, must be str"
        if not key or len(key.split()) != 1 or key != key.strip():
            return f"key {key!r} is empty or has blanks in it, which separate keys"
        if (fault := _separator_fault("key", key)) is not None:
            return fault
    return None


def _properties_fault(properties: Mapping[Any, Any]) -> str | None:
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            return f"property {name!r}: {value!r} must be two str, a name and a value"
        if name in SYSTEM_PROPERTIES:
            return f"property {name} belongs to RocketMQ, choose another name"
        if not name.strip() or not value.strip():
            return (
                f"property {name!r}: {value!r} has a blank name or value, consumers would lose it"
            )
        if (fault := _separator_fault("property", name)) is not None:
            return fault
        if (fault := _separator_fault(f"the value of property {name!r}", value)) is not None:
            return fault
    return None


def _delay_fault(message: Message) -> str | None:
    level, delay_ms, time_ms = message.delay_level, message.delay_ms, message.deliver_time_ms
    if not level and delay_ms is None and time_ms is None:
        return None
    if bool(level) + (delay_ms is not None) + (time_ms is not None) > 1:
        return _ONE_DELAY
    if (fault := _kind_fault(message)) is not None:
        return fault
    if not 0 <= level <= MAX_DELAY_LEVEL:
        return f"delay_level is {level}, must be 0 to {MAX_DELAY_LEVEL}"
    if delay_ms is not None and delay_ms < 0:
        return f"delay_ms is {delay_ms}, must be 0 or more"
    if time_ms is not None and time_ms <= 0:
        return f"deliver_time_ms is {time_ms}, must be milliseconds since 1970"
    return None


def _sharding_key_fault(key: str | None) -> str | None:
    if key is None:
        return None
    if not key.strip():
        return f"sharding_key is blank: {key!r}"
    return _separator_fault("sharding_key", key)


def _flag_fault(flag: int) -> str | None:
    if -0x8000_0000 <= flag <= 0x7FFF_FFFF:
        return None
    return f"flag is {flag}, must fit 32 bits"


def _separator_fault(what: str, text: str) -> str | None:
    if "\x01" in text or "\x02" in text:
        return f"{what} {text!r} holds \\x01 or \\x02, which separate properties"
    return None
