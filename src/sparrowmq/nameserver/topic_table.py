"""Which broker names have which topics, with their number of queues and permission."""

from collections.abc import Callable, Iterable, Mapping, Set
from typing import TypeAlias

import msgspec

from sparrowmq.nameserver.route_encoding import RouteAnswers
from sparrowmq.protocol.route import QueueData, TopicQueueMappingInfo
from sparrowmq.protocol.topic_config import TopicConfig

PermChange: TypeAlias = Callable[[int], int]
_Parts: TypeAlias = Mapping[str, QueueData]
"""A topic's queues by broker name. Topics that look alike share one value, so it never changes: a
broker with 50,000 topics would otherwise need as many dicts, and hold the loop for longer."""
_NONE: Set[str] = frozenset()
_NO_PARTS: _Parts = {}


class _Change:
    """One change of many topics, of one broker name: topics that were alike stay alike."""

    def __init__(self, broker_name: str) -> None:
        self._name = broker_name
        self._made: dict[tuple[int, int], tuple[_Parts, _Parts, QueueData | None]] = {}
        """By the ids of what it was made from, which is kept so that no other value gets its id."""

    def made(self, before: _Parts, queues: QueueData | None) -> _Parts:
        """The parts of a topic with these queues of the broker, or without any."""
        key = id(before), id(queues)
        found = self._made.get(key)
        if found is None:
            if queues is None:
                after = {name: kept for name, kept in before.items() if name != self._name}
            else:
                after = {**before, self._name: queues}  # in its place: the first broker counts
            found = self._made[key] = after, before, queues
        return found[0]


class TopicTable:
    """Topics by name and by broker name. A topic without any broker does not exist."""

    def __init__(self, encoded: RouteAnswers) -> None:
        self._queues: dict[str, _Parts] = {}
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
        return self._queues.get(topic, _NO_PARTS)

    def mappings_of(self, topic: str) -> Mapping[str, TopicQueueMappingInfo] | None:
        """The parts of a static topic, by broker name."""
        return self._mappings.get(topic)

    def put(self, topic: str, queues: QueueData) -> None:
        """Set a topic's queues on one broker name."""
        name = queues.broker_name
        self._queues[topic] = {**self.queues_of(topic), name: queues}
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
        mine, change = self._of_broker.setdefault(broker_name, set()), _Change(broker_name)
        changed: list[str] = []
        alike: dict[tuple[int, int, int, int], QueueData] = {}
        for config in configs:
            topic = config.topic_name
            if only_missing and topic in mine:
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
            self._queues[topic] = change.made(self._queues.get(topic, _NO_PARTS), queues)
            changed.append(topic)
            mine.add(topic)
        if not mine:
            del self._of_broker[broker_name]
        self._encoded.forget_all(changed)

    def drop(self, broker_name: str, topic: str) -> None:
        """Remove a topic from a broker name."""
        self._drop_queues(_Change(broker_name), topic)
        self._drop_mapping(broker_name, topic)
        topics = self._of_broker.get(broker_name, set())
        topics.discard(topic)
        if not topics:
            self._of_broker.pop(broker_name, None)
        self._encoded.forget(topic)

    def _drop_queues(self, change: _Change, topic: str) -> None:
        left = change.made(self.queues_of(topic), None)
        if left:
            self._queues[topic] = left
        else:
            self._queues.pop(topic, None)

    def _drop_mapping(self, broker_name: str, topic: str) -> None:
        parts = self._mappings.get(topic, {})
        if parts.pop(broker_name, None) is not None and not parts:
            del self._mappings[topic]

    def drop_broker(self, broker_name: str) -> None:
        """Remove a broker name with its part of every topic."""
        topics, change = self._of_broker.pop(broker_name, _NONE), _Change(broker_name)
        for topic in topics:
            self._drop_queues(change, topic)
        for topic in [topic for topic, parts in self._mappings.items() if broker_name in parts]:
            self._drop_mapping(broker_name, topic)
        self._encoded.forget_all(topics)

    def change_perms(self, broker_name: str, change_perm: PermChange) -> int:
        """Change the permission of all topics of a broker name; returns their number."""
        topics = self.of_broker(broker_name)
        alike: dict[QueueData, QueueData] = {}
        change = _Change(broker_name)
        for topic in topics:
            parts = self._queues[topic]
            queues = parts[broker_name]
            if queues not in alike:
                alike[queues] = msgspec.structs.replace(queues, perm=change_perm(queues.perm))
            self._queues[topic] = change.made(parts, alike[queues])
        self._encoded.forget_all(topics)
        return len(topics)
