"""The broker's tables in memory, as a start opens them.

```
files ─▶ topics ─▶ groups ─▶ topics that are missing ─▶ progress ─▶ live consumers, modes, drain
```

A master adds topics that it needs and does not have. A slave adds nothing: it has what its master
has. A slave that became master has messages whose topics it may not have got yet: it makes those
topics, and takes the progress that the other slaves know.
"""

import logging
from dataclasses import dataclass

from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.consumer_offsets import ConsumerOffsets
from sparrowmq.broker.drain import Drain
from sparrowmq.broker.environment import Environment
from sparrowmq.broker.groups import Groups, RequestModes
from sparrowmq.broker.live_clients import Consumers
from sparrowmq.broker.replication.replication import Replication
from sparrowmq.broker.table_saving import TableSaving
from sparrowmq.broker.tables import BrokerTables
from sparrowmq.broker.topics import Topics, broker_made_topics, unlisted_topics
from sparrowmq.broker.watched_groups import WatchedGroups
from sparrowmq.net.tasks import Uncancellable


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTables:
    """All tables, with the files that they came from."""

    files: BrokerTables
    saving: TableSaving
    topics: Topics
    groups: Groups
    watched: WatchedGroups
    """Groups that rebalance or have a quota."""
    offsets: ConsumerOffsets
    consumers: Consumers
    modes: RequestModes
    drain: Drain

    @classmethod
    def open(
        cls,
        config: BrokerConfig,
        env: Environment,
        replication: Replication,
        uncancellable: Uncancellable,
    ) -> "OpenTables":
        """Load or create every table. Raises TableMissing, DiskFull or OSError."""
        store, clock = replication.store, env.clock
        is_used = store.max_log_offset > 0
        files = BrokerTables(env.disk, env.report)
        saving = TableSaving(env.workers, uncancellable, env.log)
        topics = Topics.open(config, files, saving, clock, store_is_used=is_used)
        watched = WatchedGroups(env.monotonic)
        groups = Groups.open(config, files, saving, clock, watched, store_is_used=is_used)
        topics.is_copy = groups.is_copy = not replication.is_master
        _add_missing_topics(topics, groups, replication, env.log)
        return cls(
            files=files,
            saving=saving,
            topics=topics,
            groups=groups,
            watched=watched,
            offsets=files.offsets.open(
                store,
                env.log,
                is_copy=not replication.is_master,
                progress=[
                    change
                    for change in replication.progress_at_slaves
                    if change.key.partition("@")[0] in topics
                ],
            ),
            consumers=files.open_consumers(env, config.client_timeout_s),
            modes=RequestModes.open(files, saving),
            drain=Drain.open(
                files,
                saving,
                topics,
                clock,
                broker_name=config.broker_name,
                cluster_name=config.cluster_name,
            ),
        )


def _add_missing_topics(
    topics: Topics, groups: Groups, replication: Replication, log: logging.Logger
) -> None:
    store = replication.store
    if replication.is_master:
        topics.add_missing(broker_made_topics(store.queues(), groups))
    if replication.is_promoted:
        unlisted = unlisted_topics(store.queues(), topics)
        topics.add_missing(unlisted)
        for topic in unlisted:
            log.warning(
                "created topic %s, of which only messages had been copied", topic.topic_name
            )
