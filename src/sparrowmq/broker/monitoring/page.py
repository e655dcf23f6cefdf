"""The page /metrics of a broker."""

from collections import Counter
from collections.abc import Iterator

from sparrowmq import __version__
from sparrowmq.broker.broker import Broker
from sparrowmq.broker.live_clients import LiveMember
from sparrowmq.broker.monitoring.health import readiness
from sparrowmq.broker.monitoring.lag import LagSamples, SampledGroupLag
from sparrowmq.broker.monitoring.traffic_figures import TopicTraffic, TrafficMetrics, message_type
from sparrowmq.broker.replication.status import behind_master, slave_list
from sparrowmq.broker.server import BrokerServer
from sparrowmq.broker.traffic.report import limits_of
from sparrowmq.metrics import families
from sparrowmq.metrics.families import Family
from sparrowmq.metrics.request_times import RequestTimes
from sparrowmq.metrics.text import LoopSlices, MetricsText, Row
from sparrowmq.net.health import is_fine
from sparrowmq.protocol.codes import version_text
from sparrowmq.protocol.heartbeat import ConsumeType
from sparrowmq.protocol.names import (
    TIMER_TOPIC,
    TRANS_HALF_TOPIC,
    is_system_group,
    is_system_topic,
)
from sparrowmq.protocol.perm import PERM_READ, PERM_WRITE

CREATIONS = {
    "update_and_create_topic": families.TOPIC_CREATION,
    "update_and_create_subscriptiongroup": families.GROUP_CREATION,
}
_PROCESSORS = (
    *("ack", "admin", "async_put", "client_manager", "consumer_manager", "heartbeat"),
    *("lite_pull", "pull", "query_message", "reply", "send", "transaction"),
)
_LOCAL = ("disk", "local")
"""The values of storage_medium and storage_type."""


class BrokerPage:
    """Builds the page from the current state of the broker's parts."""

    def __init__(
        self, server: BrokerServer, traffic: TrafficMetrics, lag: LagSamples, times: RequestTimes
    ) -> None:
        self._server = server
        self._traffic = traffic
        self._lag = lag
        self._times = times

    async def text(self) -> list[bytes]:
        """The page in parts, made in slices."""
        broker = self._server.broker
        page = MetricsText(
            {
                "cluster": broker.config.cluster_name,
                "node_id": broker.config.broker_name,
                "node_type": "broker",
            }
        )
        if broker.replication.is_master:  # a slave repeats its master's figures
            await self._add_traffic(page)
            await self._add_lag(page)
            await _add_delivery(page, broker)
            await _add_limits(page, broker)
            await _add_dedup(page, broker)
        for family, rows in self._gauges():
            await page.add(family, rows)
        for family, rows in _copies(broker):
            await page.add(family, rows)
        await page.add(families.PRODUCER_CONNECTIONS, await _producers(broker, page.pace))
        await page.add(families.CONSUMER_CONNECTIONS, await _consumers(broker, page.pace))
        await page.add_histograms(families.RPC_LATENCY, self._times.rows())
        await self._add_creations(page)
        return page.parts

    async def _add_traffic(self, page: MetricsText) -> None:
        broker, traffic = self._server.broker, self._traffic
        await traffic.look(page.pace)
        topics: list[tuple[tuple[str, str, str], TopicTraffic]] = []
        for topic, came in list(traffic.topics.items()):
            labels = (_word(is_system_topic(topic)), message_type(broker, topic), topic)
            topics.append((labels, came))
            await page.pace.rest()
        await page.add(families.MESSAGES_IN, ((labels, each.messages) for labels, each in topics))
        await page.add(families.THROUGHPUT_IN, ((labels, each.bytes) for labels, each in topics))
        await page.add_histograms(
            families.MESSAGE_SIZE, ((labels, each.sizes) for labels, each in topics)
        )
        groups = list(traffic.groups.items())
        await page.add(
            families.MESSAGES_OUT, ((_group_labels(key), each.messages) for key, each in groups)
        )
        await page.add(
            families.THROUGHPUT_OUT,
            ((_group_labels(key), round(each.bytes)) for key, each in groups),
        )
        dead = list(broker.dead_letters.counts.items())
        await page.add(
            families.SENT_TO_DLQ,
            ((_group_labels(f"{topic}@{group}"), count) for (group, topic), count in dead),
        )

    async def _add_lag(self, page: MetricsText) -> None:
        groups = await self._lag.groups(page.pace)
        await page.add(families.LAG, ((each.labels, each.lag) for each in groups))
        await page.add(families.READY, ((each.labels, each.ready) for each in groups))
        await page.add(
            families.INFLIGHT, ((each.labels, max(0, each.lag - each.ready)) for each in groups)
        )
        await page.add(
            families.LAG_LATENCY,
            ((each.labels, each.latency_ms) for each in groups if each.latency_ms is not None),
        )
        await page.add(
            families.QUEUEING_LATENCY,
            ((each.labels, each.queueing_ms) for each in groups if each.queueing_ms is not None),
        )
        if self._server.broker.config.metrics_per_queue:
            await page.add(families.QUEUE_LAG, _queue_rows(groups))

    async def _add_creations(self, page: MetricsText) -> None:
        for family in CREATIONS.values():
            rows = [
                ((_status(is_success), "false")[: len(family.labels)], histogram)
                for (its, is_success), histogram in self._times.created.items()
                if its is family
            ]
            await page.add_histograms(family, rows)

    def _gauges(self) -> Iterator[tuple[Family, list[Row]]]:
        """All gauges that have one value, or one for each processor."""
        server, broker = self._server, self._server.broker
        store, usage = broker.store, broker.disk.usage()
        oldest_ms = store.store_time(store.min_log_offset)
        is_ready = is_fine(readiness(broker, server.registration))
        is_refusing = bool(broker.send_refusal or store.admission.refusal)
        yield families.WATERMARK, [((each,), 0) for each in _PROCESSORS]
        storage = {
            families.STORAGE_SIZE: usage.total_bytes - usage.free_bytes,
            families.FLUSH_BEHIND: store.max_log_offset - store.durable_log_offset,
            families.DISPATCH_BEHIND: 0,
            families.RESERVE_TIME: max(0, broker.clock() - oldest_ms) if oldest_ms >= 0 else 0,
        }
        for family, value in storage.items():
            yield family, [(_LOCAL, value)]
        single = {
            families.PERMISSION: PERM_READ if is_refusing else PERM_READ | PERM_WRITE,
            families.TOPIC_NUMBER: len(broker.topics),
            families.GROUP_NUMBER: len(broker.groups),
            families.LOG_BYTES: store.max_log_offset - store.min_log_offset,
            families.DISK_FREE: usage.free_bytes,
            families.DISK_TOTAL: usage.total_bytes,
            families.IS_READY: int(is_ready),
            families.IS_BUSY: int(bool(broker.busy_reason)),
            families.CONNECTIONS: len(server.endpoint.connections),
            families.WAITING_PULLS: broker.arrivals.waiting,
        }
        for family, value in single.items():
            yield family, [((), value)]
        role = "master" if broker.replication.is_master else "slave"
        yield families.BUILD, [((role, __version__), 1)]


def _copies(broker: Broker) -> Iterator[tuple[Family, list[Row]]]:
    """How far slaves are behind. A master knows that of those that are away, too, so an alert on
    its figures does not depend on a slave that answers."""
    replication, now_ms = broker.replication, broker.clock()
    if replication.follower is not None:
        behind_bytes, behind_s = behind_master(replication, replication.follower, now_ms)
        yield families.BEHIND_MASTER, [((), behind_bytes)]
        yield families.SECONDS_BEHIND_MASTER, [((), behind_s)] if behind_s >= 0 else []
        return
    end, slaves = broker.store.max_log_offset, slave_list(replication, now_ms).slaves
    yield families.COPIES_IN_SYNC, [((), replication.replicas.in_sync(end))]
    yield families.SLAVE_FOLLOWS, [((str(each.broker_id),), int(each.follows)) for each in slaves]
    yield (
        families.SLAVE_BEHIND,
        [((str(each.broker_id),), max(0, end - each.acknowledged)) for each in slaves],
    )


async def _add_delivery(page: MetricsText, broker: Broker) -> None:
    timers, now_ms = broker.delivery.timers, broker.delivery.clock.now_ms()
    late_ms = max(0, now_ms - timers.delivered_before(now_ms))
    await page.add(families.TIMER_ENQUEUE_LAG, [(_LOCAL, 0)])
    await page.add(families.TIMER_ENQUEUE_LATENCY, [(_LOCAL, 0)])
    await page.add(families.TIMER_DEQUEUE_LATENCY, [(_LOCAL, late_ms)])
    await page.add(families.TIMING_MESSAGES, [((*_LOCAL, TIMER_TOPIC), len(timers))])
    for family, ended in (
        (families.COMMITS, broker.delivery.committed),
        (families.ROLLBACKS, broker.delivery.rolled_back),
    ):
        await page.add(family, [((topic,), count) for topic, count in ended.items()])
    await page.add(families.HALF_MESSAGES, [((TRANS_HALF_TOPIC,), len(broker.delivery.halves))])


async def _add_limits(page: MetricsText, broker: Broker) -> None:
    limits = [
        (("quota" if each.backlog is None else "backlog", each.name, each.scope), each)
        for each in await limits_of(broker)
    ]
    await page.add(families.REFUSED_SENDS, [(labels, each.refused) for labels, each in limits])
    await page.add(families.DROPPED_SENDS, [(labels, each.dropped) for labels, each in limits])
    reached = [
        ((each.name,), int(each.lasting_ms is not None))
        for _, each in limits
        if each.backlog is not None
    ]
    await page.add(families.BACKLOG_REACHED, reached)


async def _add_dedup(page: MetricsText, broker: Broker) -> None:
    windows = broker.traffic.dedup.windows
    ids = [((topic,), len(window)) for topic, window in windows.items()]
    await page.add(families.DEDUP_IDS, ids)
    duplicates = [((topic,), window.duplicates) for topic, window in windows.items()]
    await page.add(families.DEDUP_DUPLICATES, duplicates)
    await page.add(families.DEDUP_CUT, [((topic,), each.cut) for topic, each in windows.items()])


def _queue_rows(groups: list[SampledGroupLag]) -> Iterator[Row]:
    for each in groups:
        group, _, _, topic = each.labels
        for queue in each.queues:
            yield (group, str(queue.queue_id), topic), queue.lag


def _group_labels(key: str) -> tuple[str, str, str]:
    """consumer_group, is_system and topic of `topic@group`."""
    topic, _, group = key.partition("@")
    return group, _word(is_system_topic(topic) or is_system_group(group)), topic


async def _producers(broker: Broker, pace: LoopSlices) -> list[Row]:
    found: Counter[tuple[str, ...]] = Counter()
    for _, members in broker.producers.groups():
        found.update(map(_client, members))
        await pace.rest()
    return list(found.items())


async def _consumers(broker: Broker, pace: LoopSlices) -> list[Row]:
    found: Counter[tuple[str, ...]] = Counter()
    for group in broker.consumers:
        mode = "pull" if group.consume_type is ConsumeType.ACTIVELY else "push"
        own = (mode, group.name, _word(is_system_group(group.name)))
        found.update((*own, *_client(member)) for member in group.members.values())
        await pace.rest()
    return list(found.items())


def _client(member: LiveMember) -> tuple[str, str, str]:
    """language, protocol_type and version."""
    return member.language.lower(), "remoting", version_text(member.version).lower()


def _status(is_success: bool) -> str:
    return "success" if is_success else "failed"


def _word(value: bool) -> str:
    return "true" if value else "false"
