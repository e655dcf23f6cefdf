"""The topics that a broker announces when it registers with a name server.

JSON, or compressed (zlib over length-prefixed parts, all lengths 4 bytes):

    version JSON | number of topics | topic lines … | filter servers JSON
                 | number of mappings | mapping JSON …              (since 5.0)
"""

import struct
import zlib
from collections.abc import Generator, Iterator
from itertools import islice
from typing import TypeVar

import msgspec
from msgspec import field

from sparrowmq.protocol.body import Body, DataVersion
from sparrowmq.protocol.compression import inflate
from sparrowmq.protocol.crc import crc32
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.lenient_json import read_json, write_json
from sparrowmq.protocol.route import TopicQueueMappingInfo
from sparrowmq.protocol.topic_config import RegisteredTopics, TopicConfig

MAX_PLAIN_BYTES = 64 * 1024 * 1024
"""Largest decompressed registration, some 400,000 topics."""

_INT = struct.Struct(">i")
_BEST_COMPRESSION = 9
_TOPICS_AT_ONCE = 64
_TOPIC = msgspec.json.Decoder(TopicConfig, strict=False)
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_FAULTS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, BodyError)

T = TypeVar("T")


class RegisterBrokerBody(Body, frozen=True, kw_only=True):
    """Body of request 103. Without one the broker registers no topics."""

    topics: RegisteredTopics = field(
        name="topicConfigSerializeWrapper", default_factory=RegisteredTopics
    )
    filter_server_list: tuple[str, ...] = ()

    def encode(self, *, compressed: bool) -> bytes:
        """The body in one of its two formats."""
        return self._compressed() if compressed else self.to_json()

    @classmethod
    def decode(cls, data: bytes, *, compressed: bool) -> "RegisterBrokerBody":
        """Read either format. Raises BodyError (TooLarge above 64 MiB decompressed)."""
        return whole(cls.decode_in_steps(data, compressed=compressed))

    @classmethod
    def decode_in_steps(
        cls, data: bytes, *, compressed: bool
    ) -> Generator[None, None, "RegisterBrokerBody"]:
        """The same, yielding after every few topics. JSON that only Java reads is one step."""
        if compressed:
            return (yield from _read(_Parts(inflate(data, MAX_PLAIN_BYTES))))
        try:
            return (yield from _read_json(data))
        except _FAULTS:
            return cls.from_json(data)

    def _compressed(self) -> bytes:
        topics = self.topics
        mappings = topics.topic_queue_mapping_info_map.values()
        lines = [topic.to_line().encode() for topic in topics.topic_config_table.values()]
        parts = [_sized(topics.data_version.to_json()), _INT.pack(len(lines)), *map(_sized, lines)]
        parts.append(_sized(write_json(self.filter_server_list)))
        parts.append(_INT.pack(len(mappings)))
        parts.extend(_sized(mapping.to_json()) for mapping in mappings)
        return zlib.compress(b"".join(parts), _BEST_COMPRESSION)


def body_checksum(body: bytes) -> int:
    """The header's bodyCrc32: CRC32 of the body as sent, without its highest bit."""
    return crc32(body) & 0x7FFFFFFF


def whole(steps: Generator[None, None, T]) -> T:
    """The result of a generator that returns one."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # T, says the generator's type


def _sized(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


class _Parts:
    """Length-prefixed parts, one after the other."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self) -> int:
        if self.at + 4 > len(self.data):
            raise BodyError(f"registration ends at byte {len(self.data)}, a length is missing")
        value: int = _INT.unpack_from(self.data, self.at)[0]
        self.at += 4
        return value

    def part(self) -> bytes:
        size = self.number()
        end = self.at + size
        if size < 0 or end > len(self.data):
            raise BodyError(
                f"registration has a part of {size} bytes at {self.at} of {len(self.data)}"
            )
        part = self.data[self.at : end]
        self.at = end
        return part

    def parts(self) -> Iterator[bytes]:
        # Each part takes at least 4 bytes, so a false count ends with the data
        return (self.part() for _ in range(self.number()))

    @property
    def is_done(self) -> bool:
        return self.at >= len(self.data)


def _read_json(data: bytes) -> Generator[None, None, RegisterBrokerBody]:
    """Read regular JSON topic by topic. Raises one of _FAULTS for any other."""
    members = _MEMBERS.decode(data)
    yield
    inner = _MEMBERS.decode(members.pop("topicConfigSerializeWrapper", b"{}"))
    yield
    lines = _MEMBERS.decode(inner.pop("topicConfigTable", b"{}"))
    yield
    table: dict[str, TopicConfig] = {}
    remaining = iter(lines.items())
    while some := tuple(islice(remaining, _TOPICS_AT_ONCE)):
        table.update((name, _TOPIC.decode(line)) for name, line in some)
        yield
    rest = RegisterBrokerBody.from_json(msgspec.json.encode(members))
    topics = RegisteredTopics.from_json(msgspec.json.encode(inner))
    topics = msgspec.structs.replace(topics, topic_config_table=table)
    return msgspec.structs.replace(rest, topics=topics)


def _read(parts: _Parts) -> Generator[None, None, RegisterBrokerBody]:
    version = DataVersion.from_json(parts.part())
    table: dict[str, TopicConfig] = {}
    lines = parts.parts()
    while some := tuple(islice(lines, _TOPICS_AT_ONCE)):
        try:
            topics = [TopicConfig.from_line(line.decode()) for line in some]
        except UnicodeDecodeError:
            raise BodyError("registration has a topic that is not UTF-8") from None
        table.update((topic.topic_name, topic) for topic in topics)
        yield
    servers = read_json(parts.part(), tuple[str, ...])
    # Brokers before 5.0 end here; Apache decides by the version they announce
    found = () if parts.is_done else parts.parts()
    mappings = [TopicQueueMappingInfo.from_json(mapping) for mapping in found]
    return RegisterBrokerBody(
        topics=RegisteredTopics(
            topic_config_table=table,
            data_version=version,
            topic_queue_mapping_info_map={mapping.topic or "": mapping for mapping in mappings},
        ),
        filter_server_list=servers,
    )
