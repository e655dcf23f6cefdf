"""Topics as brokers configure them, and the table they register with name servers."""

from enum import StrEnum
from typing import Self

from msgspec import field, structs

from sparrowmq.protocol.body import Body, DataVersion
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.lenient_json import read_json, write_json
from sparrowmq.protocol.perm import PERM_READ_WRITE
from sparrowmq.protocol.route import TopicQueueMappingDetail, TopicQueueMappingInfo


class TopicFilterType(StrEnum):
    """Whether a message carries one tag or several."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"

    @classmethod
    def _missing_(cls, value: object) -> Self:
        return cls(cls.SINGLE_TAG)


class TopicConfig(Body, frozen=True, kw_only=True):
    """A topic on one broker."""

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = PERM_READ_WRITE
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)

    def with_perm(self, perm: int) -> Self:
        """The same with another permission."""
        return self if perm == self.perm else structs.replace(self, perm=perm)

    def to_line(self) -> str:
        """The short form inside a compressed registration: name read write perm filter JSON."""
        return (
            f"{self.topic_name} {self.read_queue_nums} {self.write_queue_nums} {self.perm} "
            f"{self.topic_filter_type} {write_json(self.attributes).decode()}"
        )

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Read the short form; the sixth part is missing before RocketMQ 5. Raises BodyError."""
        parts = line.split(" ", 5)
        attributes_json = parts.pop() if len(parts) == 6 else ""
        try:
            name, read, write, perm, filter_type = parts
            return cls(
                topic_name=name,
                read_queue_nums=int(read),
                write_queue_nums=int(write),
                perm=int(perm),
                topic_filter_type=TopicFilterType(filter_type),
                attributes=_attributes(attributes_json),
            )
        except ValueError:
            raise BodyError(f"not a topic configuration: {line[:200]!r}") from None


def _attributes(json: str) -> dict[str, str]:
    return read_json(json.encode(), dict[str, str]) if json else {}


class TopicConfigTable(Body, frozen=True, kw_only=True):
    """All topics of a broker (Apache's TopicConfigSerializeWrapper); also the file topics.json."""

    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = DataVersion()


class TopicConfigList(Body, frozen=True, kw_only=True):
    """Topics to create or change at once."""

    topic_config_list: tuple[TopicConfig, ...] = ()


class RegisteredTopics(TopicConfigTable, frozen=True, kw_only=True):
    """The table with the mappings of static topics, as registrations carry it since 5.0."""

    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = field(default_factory=dict)
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] = field(default_factory=dict)
    mapping_data_version: DataVersion = DataVersion()
