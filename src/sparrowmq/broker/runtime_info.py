"""The state of a broker, under the names that Apache's tools look for."""

from sparrowmq import __version__
from sparrowmq.broker.broker import Broker
from sparrowmq.broker.replication.status import replication_table
from sparrowmq.broker.statistics import BROKER_PUT, DELIVERED_TIMERS, GROUP_GET, TOPIC_PUT
from sparrowmq.protocol.codes import MQ_VERSION
from sparrowmq.protocol.delay import schedule_queue_id
from sparrowmq.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC

VERSION_TEXT = "V5_3_3"
"""The name of the version whose number is MQ_VERSION."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def runtime_info(broker: Broker) -> dict[str, str]:
    """Names and values. There are no thread pools here; waiting requests are reported instead."""
    now_ms = broker.monotonic()
    running_ms = now_ms - broker.statistics.started_ms
    values: dict[str, object] = {
        "bootTimestamp": broker.clock() - running_ms,
        "runtime": _duration(running_ms),
        "brokerActive": _yes(broker.replication.is_master),
        "brokerVersionDesc": VERSION_TEXT,
        "brokerVersion": MQ_VERSION,
        "sparrowmqVersion": __version__,
        "startAcceptSendRequestTimeStamp": 0,
        **_drain(broker),
        **_counts(broker, now_ms),
        **_log(broker),
        **_waiting(broker),
        **_delay_levels(broker),
        **_timers(broker, now_ms),
        **_dedup(broker),
        **replication_table(broker.replication, broker.clock()),
    }
    return {name: str(value) for name, value in sorted(values.items())}


def _counts(broker: Broker, now_ms: int) -> dict[str, object]:
    put, got = broker.statistics.totals
    put_bytes = broker.statistics.log_growth_bytes
    yesterday, today = broker.statistics.mornings
    put_tps, got_tps = (_rates(tps) for tps in broker.statistics.recent_tps(now_ms))
    return {
        "putTps": put_tps,
        "getTransferredTps": got_tps,
        "getFoundTps": got_tps,
        "getTotalTps": got_tps,
        "getMissTps": "0.0 0.0 0.0",
        "putMessageTimesTotal": put,
        "putMessageFailedTimes": 0,
        "putMessageSizeTotal": put_bytes,
        "putMessageAverageSize": put_bytes / max(1, put),
        "putMessageEntireTimeMax": broker.durability.put_times.longest_ms,
        "getMessageEntireTimeMax": broker.statistics.longest_get_ms,
        "putMessageDistributeTime": _put_times(broker, now_ms),
        "msgPutTotalYesterdayMorning": yesterday[0],
        "msgPutTotalTodayMorning": today[0],
        "msgPutTotalTodayNow": put,
        "msgGetTotalYesterdayMorning": yesterday[1],
        "msgGetTotalTodayMorning": today[1],
        "msgGetTotalTodayNow": got,
    }


def _drain(broker: Broker) -> dict[str, object]:
    """The state of a drain; empty while the broker serves."""
    if not broker.drain.is_on:
        return {}
    return {"drain": broker.drain.words, "drainSince": broker.drain.since_ms}


def _put_times(broker: Broker, now_ms: int) -> str:
    spans = broker.statistics.spans(BROKER_PUT, broker.config.cluster_name, now_ms)
    return broker.durability.put_times.distribution(0 if spans is None else spans.stats_minute.sum)


def _log(broker: Broker) -> dict[str, object]:
    store = broker.store
    usage = broker.disk.usage()
    ratio = 1 - usage.free_bytes / usage.total_bytes if usage.total_bytes else 0.0
    total, free = human_bytes(usage.total_bytes), human_bytes(usage.free_bytes)
    return {
        "commitLogMinOffset": store.min_log_offset,
        "commitLogMaxOffset": store.max_log_offset,
        "earliestMessageTimeStamp": store.store_time(store.min_log_offset),
        "dispatchBehindBytes": 0,
        "dispatchMaxBuffer": 0,  # an append dispatches at once
        "remainHowManyDataToFlush": human_bytes(store.max_log_offset - store.durable_log_offset),
        "remainTransientStoreBufferNumbs": 2**31 - 1,
        "commitLogDiskRatio": round(ratio, 6),
        "consumeQueueDiskRatio": round(ratio, 6),
        "commitLogDirCapacity": f"Total : {total}, Free : {free}.",
    }


def _waiting(broker: Broker) -> dict[str, object]:
    """No queue stands between a socket and its handler; pulls that wait are parked."""
    wait_ms = int(broker.durability.oldest_wait_s * 1000)
    values: dict[str, object] = {"pageCacheLockTimeMills": 0}
    for pool in ("send", "pull", "litePull", "query", "ack"):
        values[f"{pool}ThreadPoolQueueSize"] = 0
        values[f"{pool}ThreadPoolQueueCapacity"] = 0
        values[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = 0
    values["sendThreadPoolQueueHeadWaitTimeMills"] = wait_ms
    values["EndTransactionQueueSize"] = values["EndTransactionThreadPoolQueueCapacity"] = 0
    values["halfMessages"] = len(broker.delivery.halves)
    values["waitingPulls"] = broker.arrivals.waiting
    values["waitingPullsMax"] = broker.config.max_waiting_pulls
    values["busyReason"] = broker.busy_reason
    return values


def _delay_levels(broker: Broker) -> dict[str, object]:
    """For each level, how far it is delivered and how far it could be."""
    values: dict[str, object] = {}
    for level, offset in broker.delivery.levels.offsets.items():
        end = broker.store.max_offset(SCHEDULE_TOPIC, schedule_queue_id(level))
        values[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
    return values


def _timers(broker: Broker, now_ms: int) -> dict[str, object]:
    """How many timers wait and how late the first is; `mqadmin clusterList` prints these."""
    timers, statistics = broker.delivery.timers, broker.statistics
    next_ms = timers.next_due_ms
    late_ms = 0 if next_ms is None else max(0, broker.clock() - next_ms)
    return {
        "timerReadBehind": late_ms // 1000,
        "timerOffsetBehind": 0,  # there is no second queue before the timers
        "timerCongestNum": len(timers),
        "timerEnqueueTps": statistics.tps(TOPIC_PUT, TIMER_TOPIC, now_ms),
        "timerDequeueTps": statistics.tps(GROUP_GET, DELIVERED_TIMERS, now_ms),
    }


def _dedup(broker: Broker) -> dict[str, object]:
    """Windows that forgot messages before their time: how many messages, the milliseconds that are
    remembered now, and the milliseconds that were asked for."""
    return {
        f"dedupCut_{topic}": f"{window.cut},{window.span_ms},{window.rule.time_ms}"
        for topic, window in broker.traffic.dedup.windows.items()
        if window.cut
    }


def _yes(is_so: bool) -> str:
    return "true" if is_so else "false"


def _rates(tps: tuple[float, float, float]) -> str:
    return " ".join(f"{rate:.6f}" for rate in tps)


def _duration(elapsed_ms: int) -> str:
    seconds = elapsed_ms // 1000
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def human_bytes(size: int) -> str:
    """`1.5 GiB`, as Apache's tools print sizes."""
    amount, unit = float(size), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.1f} {_UNITS[unit]}" if unit else f"{size} B"
