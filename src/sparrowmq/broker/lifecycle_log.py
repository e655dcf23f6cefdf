"""The log of a broker's start and stop: one line for each step, with figures.

```
recovery: the last stop was not clean; scanned 1,204 records (310.2 KiB), cut 17 B
opened /var/lib/sparrowmq in 0.04 s: log 0 to 5,001,216 (4.8 MiB), 12 topics, 7 groups, 96 queues
stopped in 0.21 s: log synced up to 5,204,992, progress of 7 groups saved
```
"""

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.topics import system_topics
from sparrowmq.disk.disk import Usage
from sparrowmq.protocol.names import (
    is_dlq_topic,
    is_retry_topic,
    is_system_group,
    is_system_topic,
)
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.flushing import Recovered

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def log_start(broker: Broker, began_ms: int) -> None:
    """Log what was opened, how long that took, whether it drains, and whether the disk has room."""
    store = broker.store
    broker.log.info("recovery: %s", recovery_text(store.recovered))
    took_s = (broker.monotonic() - began_ms) / 1000
    least, most = store.min_log_offset, store.max_log_offset
    broker.log.info(
        "opened %s in %.2f s: log %s to %s (%s), %s, %s, %s",
        *(broker.config.data_dir, took_s, f"{least:,}", f"{most:,}", size_text(most - least)),
        *(_count(_topics(broker), "topic"), _count(_groups(broker), "group")),
        _count(sum(1 for _ in store.queues()), "queue"),
    )
    if broker.drain.is_on:
        name = broker.config.broker_name
        text = "%s %s; resume it with: sparrowmq broker resume %s"
        broker.log.warning(text, name, broker.drain.words, name)
    if warning := space_warning(broker.config.store, broker.disk.usage()):
        broker.log.warning("the disk of %s is %s", broker.config.data_dir, warning)


def log_stop(broker: Broker, began_ms: int) -> None:
    """Log what was saved. A failed store has already logged why it failed."""
    took_s = (broker.monotonic() - began_ms) / 1000
    if broker.store.has_failed:
        text = "stopped in %.2f s without saving: the store failed, and the next start recovers it"
        broker.log.error(text, took_s)
        return
    broker.log.info(
        "stopped in %.2f s: log synced up to %s, progress of %s saved",
        *(took_s, f"{broker.store.durable_log_offset:,}", _count(_groups(broker), "group")),
    )


def recovery_text(found: Recovered) -> str:
    """How the last run ended, and what recovery did."""
    if not found.end and not found.was_running:
        return "the store is empty"
    stop = "was not clean" if found.was_running else "was clean"
    if not found.scanned_bytes:
        return f"the last stop {stop}; nothing to scan"
    work = [f"scanned {_count(found.scanned_records, 'record')} ({size_text(found.scanned_bytes)})"]
    if found.cut_bytes:
        work.append(f"cut {size_text(found.cut_bytes)}")
    if found.rebuilt_queues:
        work.append(f"rebuilt {_count(found.rebuilt_queues, 'queue')}")
    return f"the last stop {stop}; {', '.join(work)}"


def space_warning(config: StoreConfig, usage: Usage) -> str:
    """How full the disk is, the consequences and what to do; empty while there is room."""
    if not usage.total_bytes:
        return ""
    ratio = 1 - usage.free_bytes / usage.total_bytes
    effects = (
        (config.refuse_ratio, "store-refuse-ratio", "messages are refused"),
        (
            config.force_clean_ratio,
            "store-force-clean-ratio",
            "the oldest messages are deleted although they have not expired",
        ),
        (config.clean_ratio, "store-clean-ratio", "expired files are deleted at any hour"),
    )
    for mark, setting, effect in effects:
        if ratio >= mark:
            free, total = size_text(usage.free_bytes), size_text(usage.total_bytes)
            return (
                f"{ratio:.0%} full ({free} of {total} are free): from {mark:.0%} on ({setting})"
                f" {effect}; make room there, or keep messages for a shorter time"
                " (store-retention)"
            )
    return ""


def size_text(size_bytes: float) -> str:
    """`310.2 KiB`."""
    for unit in _UNITS[:-1]:
        if size_bytes < 1024:
            return f"{size_bytes:.1f} {unit}" if unit != "B" else f"{size_bytes} B"
        size_bytes /= 1024
    return f"{size_bytes:.1f} {_UNITS[-1]}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _topics(broker: Broker) -> int:
    """The number of users' topics."""
    own = {topic.topic_name for topic in system_topics(broker.config)}
    return sum(
        name not in own
        and not (is_system_topic(name) or is_retry_topic(name) or is_dlq_topic(name))
        for name in (topic.topic_name for topic in broker.topics)
    )


def _groups(broker: Broker) -> int:
    return sum(not is_system_group(group.group_name) for group in broker.groups)
