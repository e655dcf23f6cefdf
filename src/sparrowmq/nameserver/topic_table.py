"""Which broker names have which topics, with their number of queues and permission."""

from collections.abc import Callable, Iterable, Mapping, Set
from typing import TypeAlias

import msgspec

from sparrowmq.nameserver.route_encoding import RouteAnswers
from sparrowmq.protocol.route import QueueData, TopicQueueMappingInfo
from sparrowmq.protocol.topic_config import TopicConfig

PermChange: TypeAlias = Callable[[int], int]
_NONE: Set[str] = frozenset()


class TopicTable:
    """Topics by name and by broker name. A topic without any broker does not exist."""

    def __init__(self, encoded: RouteAnswers) -> None:
        self._queues: dict[str, dict[str, QueueData]] = {}
        self._of_broker: dict[str, set[str]] = {}
        self._mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}
        self._encoded = encoded

    def __contains__(self, topic: str) -> bool:
        return topic in self._queues

    def __len__(self) -> int:
        return len(self._queues)

    def names(self) -> Set[str]:
        """All topics."""
        return self._queues.keys()

    def names_with_flag(self, accept: Callable[[int], bool]) -> frozenset[str]:
        """Topics whose system flag `accept` takes; the first broker's flag counts, as in Apache."""
        return frozenset(
            topic
            for topic, queues in self._queues.items()
            if accept(next(iter(queues.values())).topic_sys_flag)
        )

    def of_broker(self, broker_name: str) -> Set[str]:
        """The topics that a broker name has."""
        return self._of_broker.get(broker_name, _NONE)

    def queues_of(self, topic: str) -> Mapping[str, QueueData]:
        """Queue data by broker name; empty for an unknown topic."""
        return self._queues.get(topic, {})

    def mappings_of(self, topic: str) -> Mapping[str, TopicQueueMappingInfo] | None:
        """The parts of a static topic, by broker name."""
        return self._mappings.get(topic)

    def put(self, topic: str, queues: QueueData) -> None:
        """Set a topic's queues on one broker name."""
        name = queues.broker_name
        self._queues.setdefault(topic, {})[name] = queues
        self._of_broker.setdefault(name, set()).add(topic)
        self._encoded.forget(topic)

    def put_mapping(self, broker_name: str, topic: str, mapping: TopicQueueMappingInfo) -> None:
        """Set the part of a static topic that one broker name has."""
        self._mappings.setdefault(topic, {})[broker_name] = mapping
        self._encoded.forget(topic)

    def put_all(
        self,
        broker_name: str,
        configs: Iterable[TopicConfig],
        *,
        only_missing: bool,
        change_perm: PermChange,
    ) -> None:
        """Set the queues of many topics of one broker name."""
        known = self.of_broker(broker_name)
        alike: dict[tuple[int, int, int, int], QueueData] = {}
        for config in configs:
            if only_missing and config.topic_name in known:
                continue
            read, write, flag = (
                config.read_queue_nums,
                config.write_queue_nums,
                config.topic_sys_flag,
            )
            perm = change_perm(config.perm)
            # Thousands of topics of one broker look alike: they share one value.
            queues = alike.get((read, write, perm, flag))
            if queues is None:
                queues = alike[read, write, perm, flag] = QueueData(
                    broker_name=broker_name,
                    read_queue_nums=read,
                    write_queue_nums=write,
                    perm=perm,
                    topic_sys_flag=flag,
                )
            self.put(config.topic_name, queues)

    def drop(self, broker_name: str, topic: str) -> None:
        """Remove a topic from a broker name."""
        for table in (self._queues, self._mappings):
            parts: dict[str, object] = table.get(topic, {})  # type: ignore[assignment]
            if parts.pop(broker_name, None) is not None and not parts:
                del table[topic]
        topics = self._of_broker.get(broker_name, set())
        topics.discard(topic)
        if not topics:
            self._of_broker.pop(broker_name, None)
        self._encoded.forget(topic)

    def drop_broker(self, broker_name: str) -> None:
        """Remove a broker name with its part of every topic."""
        for topic in tuple(self.of_broker(broker_name)):
            self.drop(broker_name, topic)

    def change_perms(self, broker_name: str, change: PermChange) -> int:
        """Change the permission of all topics of a broker name; returns their number."""
        topics = self.of_broker(broker_name)
        alike: dict[QueueData, QueueData] = {}
        for topic in topics:
            queues = self._queues[topic][broker_name]
            if queues not in alike:
                alike[queues] = msgspec.structs.replace(queues, perm=change(queues.perm))
            self._queues[topic][broker_name] = alike[queues]
            self._encoded.forget(topic)
        return len(topics)
