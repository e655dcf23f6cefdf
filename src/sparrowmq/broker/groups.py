"""Which consumer groups exist on this broker, and how they are configured."""

from collections.abc import Collection, Iterator, Mapping
from typing import Self

from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.replication.table_rules import RecentChanges
from sparrowmq.broker.table_saving import TableSaving
from sparrowmq.broker.tables import BrokerTables
from sparrowmq.broker.watched_groups import WatchedGroups
from sparrowmq.clock import Clock
from sparrowmq.protocol.body import DataVersion
from sparrowmq.protocol.broker_stats import MessageRequestMode, MessageRequestModeTable
from sparrowmq.protocol.group_config import SubscriptionGroupConfig, SubscriptionGroupTable
from sparrowmq.protocol.names import SYSTEM_GROUPS, group_fault, is_system_group
from sparrowmq.store.table_file import TableFile

_FORBIDDEN_READ = 1 << 2
"""The bit of forbiddenTable that forbids reading (PermName.INDEX_PERM_READ)."""


class Groups:
    """The table of groups. Every change gets a new version and is saved soon."""

    def __init__(
        self,
        table: SubscriptionGroupTable,
        *,
        clock: Clock,
        file: TableFile[SubscriptionGroupTable],
        saving: TableSaving,
        watched: WatchedGroups,
        auto_create: bool,
        max_groups: int,
    ) -> None:
        self._groups = dict(table.subscription_group_table)
        self._forbidden = {group: dict(topics) for group, topics in table.forbidden_table.items()}
        self._version = table.data_version
        self._clock = clock
        self.file = file
        self._saving = saving
        self.auto_create = auto_create
        self.max_groups = max_groups
        self.recent: RecentChanges[str] = RecentChanges()
        """Changes that slaves may lack."""
        self.is_copy = False
        """Whether this is a slave's table: a slave creates no groups itself."""
        self._watched = watched
        for group in self._groups.values():
            watched.learn(group)

    @classmethod
    def open(
        cls,
        config: BrokerConfig,
        tables: BrokerTables,
        saving: TableSaving,
        clock: Clock,
        watched: WatchedGroups,
        *,
        store_is_used: bool,
    ) -> Self:
        """Load the saved groups, and those that every broker has. Raises TableMissing."""
        groups = cls(
            tables.load_groups(store_is_used=store_is_used),
            clock=clock,
            file=tables.groups,
            saving=saving,
            watched=watched,
            auto_create=config.auto_create_group,
            max_groups=config.max_groups,
        )
        groups._add_missing_system_groups()
        return groups

    def __contains__(self, group: str) -> bool:
        return group in self._groups

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[SubscriptionGroupConfig]:
        return iter(tuple(self._groups.values()))

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's configuration; None if it does not exist."""
        return self._groups.get(group)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The group; created with the defaults if this is allowed and the name is legal.

        A slave applies the defaults, too, so that members can read, but creates nothing: the master
        does that when it learns of the group.
        """
        config = self._groups.get(group)
        if config is None and self._may_create(group):
            config = SubscriptionGroupConfig(group_name=group)
            if not self.is_copy:
                self.put(config)
        return config

    def _may_create(self, group: str) -> bool:
        if group_fault(group) is not None or len(self) >= self.max_groups:
            return False
        return self.auto_create or is_system_group(group)

    def table(self) -> SubscriptionGroupTable:
        """All of it, as it is saved and handed to slaves."""
        return SubscriptionGroupTable(
            subscription_group_table=dict(self._groups),
            forbidden_table={group: dict(topics) for group, topics in self._forbidden.items()},
            data_version=self._version,
        )

    def put(self, *groups: SubscriptionGroupConfig) -> None:
        """Create or replace groups."""
        for group in groups:
            self._groups[group.group_name] = group
            self._watched.learn(group)
        self._commit(*(group.group_name for group in groups))

    def remove(self, group: str) -> bool:
        """Forget a group; its offsets are in another table."""
        self._forbidden.pop(group, None)
        self._watched.forget(group)
        if self._groups.pop(group, None) is None:
            return False
        self._commit(group)
        return True

    def follow(
        self,
        changed: Collection[SubscriptionGroupConfig],
        removed: Collection[str],
        forbidden: Mapping[str, Mapping[str, int]],
        version: DataVersion,
    ) -> None:
        """Take over a master's changes, and the version of its table."""
        news = [group for group in changed if self._groups.get(group.group_name) != group]
        gone = [name for name in removed if name in self._groups]
        if not news and not gone and version == self._version and forbidden == self._forbidden:
            return
        for group in news:
            self._groups[group.group_name] = group
            self._watched.learn(group)
        for name in gone:
            del self._groups[name]
            self._watched.forget(name)
        self._forbidden = {group: dict(topics) for group, topics in forbidden.items()}
        self._version = version
        self._saving.changed(self)

    def set_readable(self, group: str, topic: str, *, readable: bool) -> None:
        """Allow a group to read a topic, or forbid it."""
        row = self._forbidden.setdefault(group, {})
        bits = row.get(topic, 0)
        row[topic] = bits & ~_FORBIDDEN_READ if readable else bits | _FORBIDDEN_READ
        if not row[topic]:
            del row[topic]
        if not row:
            del self._forbidden[group]
        self._commit(group)

    def is_readable(self, group: str, topic: str) -> bool:
        """Whether the group may read the topic: no operator forbade it."""
        if not self._forbidden:
            return True
        return not self._forbidden.get(group, {}).get(topic, 0) & _FORBIDDEN_READ

    def _add_missing_system_groups(self) -> None:
        """Groups of RocketMQ's own tools, which exist from the first start."""
        missing = sorted(group for group in SYSTEM_GROUPS if group not in self._groups)
        if missing:
            self.put(*(SubscriptionGroupConfig(group_name=group) for group in missing))

    def _commit(self, *names: str) -> None:
        self._version = self._version.next(self._clock())
        self.recent.note(names)
        self._saving.changed(self)

    def was_saved(self, table: SubscriptionGroupTable) -> None:
        """Ignored: nothing here depends on a save."""


PULL = "PULL"


class RequestModes:
    """How groups consume topics, if an operator chose it. Only pulling can be chosen."""

    def __init__(
        self,
        table: MessageRequestModeTable,
        *,
        file: TableFile[MessageRequestModeTable],
        saving: TableSaving,
    ) -> None:
        self._modes = {
            topic: dict(groups) for topic, groups in table.message_request_mode_map.items()
        }
        self.file = file
        self._saving = saving
        self.changes = 0
        """The number of changes since the start."""

    @classmethod
    def open(cls, tables: BrokerTables, saving: TableSaving) -> Self:
        """Load the saved modes."""
        return cls(tables.load_request_modes(), file=tables.modes, saving=saving)

    def put(self, mode: MessageRequestMode) -> None:
        """Set how a group consumes a topic; saved soon."""
        self._modes.setdefault(mode.topic, {})[mode.consumer_group] = mode
        self.changes += 1
        self._saving.changed(self)

    def follow(self, table: MessageRequestModeTable) -> None:
        """Become equal to a master's table."""
        modes = {topic: dict(groups) for topic, groups in table.message_request_mode_map.items()}
        if modes != self._modes:
            self._modes = modes
            self.changes += 1
            self._saving.changed(self)

    def table(self) -> MessageRequestModeTable:
        """All of it, as it is saved and handed to slaves."""
        modes = {topic: dict(groups) for topic, groups in self._modes.items()}
        return MessageRequestModeTable(message_request_mode_map=modes)

    def was_saved(self, table: MessageRequestModeTable) -> None:
        """Ignored: nothing here depends on a save."""
