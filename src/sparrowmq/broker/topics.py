"""Which topics exist on this broker, and what a send may do with them."""

import asyncio
from collections.abc import Collection, Iterable, Iterator
from typing import Self

import msgspec

from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.groups import Groups
from sparrowmq.broker.replication.table_rules import RecentChanges
from sparrowmq.broker.table_saving import TableSaving
from sparrowmq.broker.tables import BrokerTables
from sparrowmq.clock import Clock
from sparrowmq.protocol import names
from sparrowmq.protocol.body import DataVersion
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.perm import PERM_INHERIT, PERM_READ_WRITE, is_inherited, is_readable
from sparrowmq.protocol.topic_config import TopicConfig, TopicConfigTable
from sparrowmq.store.table_file import TableFile

_OWN_TOPICS = (names.RETRY_PREFIX, names.DLQ_PREFIX, names.TRANS_CHECK_MAX_TIME_TOPIC)


class Topics:
    """The table of topics. A change gets a new version, is saved soon, and sets `changed`."""

    def __init__(
        self,
        table: TopicConfigTable,
        *,
        clock: Clock,
        file: TableFile[TopicConfigTable],
        saving: TableSaving,
    ) -> None:
        self._topics = dict(table.topic_config_table)
        self._version = table.data_version
        self._clock = clock
        self.file = file
        self._saving = saving
        self._unsaved: dict[str, int] = {}
        """Topics that a crash could lose, each with the version of its last change."""
        self.recent: RecentChanges[str] = RecentChanges()
        """Changes that slaves may lack."""
        self.is_copy = False
        """Whether this is a slave's table: a slave creates no topics itself."""
        self.changed = asyncio.Event()
        """Set by every change; cleared by the loop that registers topics with name servers."""
        self.checked_for_send: dict[str, TopicConfig] = {}
        """Saved topics that have passed all checks of a send: the only look-up on the hot path."""
        self.checked_with_limits: dict[str, TopicConfig] = {}
        """Saved topics with a limit that every send has to check."""

    @classmethod
    def open(
        cls,
        config: BrokerConfig,
        tables: BrokerTables,
        saving: TableSaving,
        clock: Clock,
        *,
        store_is_used: bool,
    ) -> Self:
        """Load the saved topics, and those that every broker has. Raises TableMissing."""
        saved = tables.load_topics(store_is_used=store_is_used)
        topics = cls(saved, clock=clock, file=tables.topics, saving=saving)
        topics.add_missing(system_topics(config))
        return topics

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(tuple(self._topics.values()))

    def __len__(self) -> int:
        return len(self._topics)

    def get(self, topic: str) -> TopicConfig | None:
        """The topic; None if this broker does not have it."""
        return self._topics.get(topic)

    def table(self) -> TopicConfigTable:
        """The whole table, as it is saved and registered."""
        return TopicConfigTable(topic_config_table=dict(self._topics), data_version=self._version)

    def put(self, *topics: TopicConfig) -> None:
        """Create or replace topics."""
        for topic in topics:
            self._topics[topic.topic_name] = topic
            self._forget_checked(topic.topic_name)
        self._commit([topic.topic_name for topic in topics])
        self._unsaved.update((topic.topic_name, self._version.counter) for topic in topics)

    def forget_checked(self) -> None:
        """Check every topic again at its next send."""
        self.checked_for_send.clear()
        self.checked_with_limits.clear()

    def _forget_checked(self, topic: str) -> None:
        self.checked_for_send.pop(topic, None)
        self.checked_with_limits.pop(topic, None)

    def is_saved(self, topic: str) -> bool:
        """Whether the topic would be the same after a crash."""
        return topic not in self._unsaved

    def was_saved(self, table: TopicConfigTable) -> None:
        """What `table` returned before is durable."""
        saved = table.data_version.counter
        self._unsaved = {name: made for name, made in self._unsaved.items() if made > saved}

    def remove(self, topic: str) -> bool:
        """Remove a topic from the table; its messages stay in the store."""
        self._forget_checked(topic)
        self._unsaved.pop(topic, None)
        if self._topics.pop(topic, None) is None:
            return False
        self._commit((topic,))
        return True

    def follow(
        self, changed: Collection[TopicConfig], removed: Collection[str], version: DataVersion
    ) -> None:
        """Take over a master's changes, and the version of its table."""
        news = [topic for topic in changed if self._topics.get(topic.topic_name) != topic]
        gone = [name for name in removed if name in self._topics]
        if not news and not gone and version == self._version:
            return
        for topic in news:
            self._topics[topic.topic_name] = topic
        for name in gone:
            del self._topics[name]
        self._version = version
        self._announce()

    def add_missing(self, topics: Iterable[TopicConfig]) -> None:
        """Create those that do not exist."""
        missing = [topic for topic in topics if topic.topic_name not in self._topics]
        if missing:
            self.put(*missing)

    def get_or_create(self, topic: str, queues: int) -> TopicConfig:
        """The topic, created with this many queues and perm 6 if it does not exist; on a slave, not
        stored, but as its master would create it."""
        config = self._topics.get(topic)
        if config is None:
            config = plain_topic(topic, queues)
            if not self.is_copy:
                self.put(config)
        return config

    def inherit(self, topic: str, default_topic: str, asked_queues: int) -> TopicConfig | None:
        """Create a topic modelled on its default topic; None if that is not possible.

        The number of queues is the smaller of what the producer asks for and what the default has.
        """
        template = self._topics.get(default_topic)
        if template is None or not is_inherited(template.perm):
            return None
        queues = max(1, min(asked_queues, template.write_queue_nums))
        config = msgspec.structs.replace(
            plain_topic(topic, queues),
            perm=template.perm & ~PERM_INHERIT,
            topic_filter_type=template.topic_filter_type,
        )
        self.put(config)
        return config

    def read_queues(self, topic: str, broker_name: str) -> tuple[MessageQueue, ...] | None:
        """The queues that can be read; None if this broker does not have the topic."""
        config = self._topics.get(topic)
        if config is None or not is_readable(config.perm):
            return None
        return tuple(MessageQueue(topic, broker_name, i) for i in range(config.read_queue_nums))

    def touch(self) -> None:
        """Register the table again although no topic changed."""
        self._version = self._version.next(self._clock())
        self._announce()

    def _commit(self, names: Collection[str]) -> None:
        self._version = self._version.next(self._clock())
        self.recent.note(names)
        self._announce()

    def _announce(self) -> None:
        self._saving.changed(self)
        self.changed.set()


def plain_topic(topic: str, queues: int, perm: int = PERM_READ_WRITE) -> TopicConfig:
    """A topic with as many read as write queues."""
    return TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=perm)


def broker_made_topics(queues: Iterable[tuple[str, int]], groups: Groups) -> list[TopicConfig]:
    """Topics that the broker itself made, as the queues in its store show.

    A retry or dead letter does not wait until its new topic is saved: after a crash the next start
    restores what the table lost.
    """
    counts: dict[str, int] = {}
    for topic, queue_id in queues:
        if topic.startswith(_OWN_TOPICS):
            # Some of a group's retry queues may still be empty.
            group = groups.get(topic.removeprefix(names.RETRY_PREFIX))
            least = 1 if group is None else group.retry_queue_nums
            counts[topic] = max(counts.get(topic, least), queue_id + 1)
    return [plain_topic(topic, count) for topic, count in counts.items()]


def unlisted_topics(queues: Iterable[tuple[str, int]], topics: Topics) -> list[TopicConfig]:
    """Topics that have queues in the store of a promoted slave but are not in its table.

    The last master created them in its last second, and acknowledged messages in them. Neither
    their number of queues nor their permissions are known.
    """
    counts: dict[str, int] = {}
    for topic, queue_id in queues:
        if topic not in topics:
            counts[topic] = max(counts.get(topic, 0), queue_id + 1)
    return [plain_topic(topic, count) for topic, count in counts.items()]


def system_topics(config: BrokerConfig) -> list[TopicConfig]:
    """Every broker's topics from its first start, as Apache's TopicConfigManager creates them."""
    topics = [
        plain_topic(names.SELF_TEST_TOPIC, 1),
        plain_topic(names.BENCHMARK_TOPIC, 1024),
        plain_topic(config.cluster_name, 16, PERM_INHERIT | PERM_READ_WRITE),
        plain_topic(config.broker_name, 1, PERM_INHERIT | PERM_READ_WRITE),
        plain_topic(names.OFFSET_MOVED_EVENT, 1),
        plain_topic(names.SCHEDULE_TOPIC, 18),
        plain_topic(f"{config.cluster_name}_REPLY_TOPIC", 1),
        plain_topic(names.TRANS_HALF_TOPIC, 1),
        plain_topic(names.TRANS_OP_HALF_TOPIC, 1),
        plain_topic(names.TIMER_TOPIC, 1),
        # Apache creates it only with traceTopicEnable; without auto-creation no client could.
        plain_topic(names.TRACE_TOPIC, 1),
    ]
    if config.auto_create_topic:
        perm = PERM_INHERIT | PERM_READ_WRITE
        topics.append(plain_topic(names.AUTO_CREATE_TOPIC, config.default_queues, perm))
    return topics
