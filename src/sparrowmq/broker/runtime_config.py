"""Settings as operators see them: with Apache's names, and which may change at run time.

A change is typed and range-checked, and nothing that names a file, a class or a command can be
changed. A change lasts until the broker stops: the next start reads the configured settings again.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.topics import plain_topic
from sparrowmq.config_fields import ConfigError
from sparrowmq.net.errors import RequestRefused
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.delay import format_delay_levels
from sparrowmq.protocol.names import AUTO_CREATE_TOPIC
from sparrowmq.protocol.perm import PERM_INHERIT, PERM_READ_WRITE

_HOUR_MS = 3_600_000
_MEBIBYTE = 1024 * 1024
_LONGEST_GAP = 1024**4


@dataclass(frozen=True, slots=True)
class RuntimeSetting:
    """One setting. `unit` is the divisor that turns the number on the wire into our field."""

    name: str
    field: str
    """A field of BrokerConfig, or `store.` and a field of StoreConfig."""
    least: int | None = None
    most: int = 0
    """The upper bound; a setting without bounds is a switch."""
    unit: float = 1

    def parse(self, text: str) -> Any:
        """The value for our field. Raises RequestRefused with the allowed values."""
        if self.least is None:
            if text not in ("true", "false"):
                raise self._refusal(text, "true or false")
            return text == "true"
        try:
            number = int(text)
        except ValueError:
            raise self._refusal(text, f"{self.least} to {self.most}") from None
        if not self.least <= number <= self.most:
            raise self._refusal(text, f"{self.least} to {self.most}")
        if self.unit == 1:
            return number
        return number / self.unit if self.unit > 1 else round(number / self.unit)

    def _refusal(self, text: str, allowed: str) -> RequestRefused:
        shown = text if len(text) <= 80 else f"{text[:80]}…"
        text = f"{self.name} cannot be {shown!r}, allowed is {allowed}"
        return RequestRefused(ResponseCode.INVALID_PARAMETER, text)

    def read(self, config: BrokerConfig) -> str:
        """The value in force, as it is written on the wire."""
        of_store = self.field.startswith("store.")
        value = getattr(config.store if of_store else config, self.field.removeprefix("store."))
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value if self.unit == 1 else round(value * self.unit))


_CHANGEABLE = (
    RuntimeSetting("autoCreateTopicEnable", "auto_create_topic"),
    RuntimeSetting("autoCreateSubscriptionGroup", "auto_create_group"),
    RuntimeSetting("notifyConsumerIdsChangedEnable", "notify_consumer_ids_changed"),
    RuntimeSetting("defaultTopicQueueNums", "default_queues", 1, 4_096),
    RuntimeSetting("maxMessageSize", "max_message_bytes", 1024, 15 * _MEBIBYTE),
    RuntimeSetting("maxTransferBytesOnMessageInMemory", "max_pull_bytes", 1024, 8 * _MEBIBYTE),
    RuntimeSetting("maxTransferCountOnMessageInMemory", "max_pull_count", 1, 4_096),
    RuntimeSetting("longPollingMillis", "long_poll_s", 0, 120_000, 1000),
    RuntimeSetting("flushConsumerOffsetInterval", "offsets_save_s", 100, 600_000, 1000),
    RuntimeSetting("clientTimeoutMillis", "client_timeout_s", 10_000, 3_600_000, 1000),
    RuntimeSetting("maxTopics", "max_topics", 1, 1_000_000),
    RuntimeSetting("maxGroups", "max_groups", 1, 1_000_000),
    RuntimeSetting("fileReservedTime", "store.retention_ms", 1, 8_760, 1 / _HOUR_MS),
    RuntimeSetting("deleteWhen", "store.deletion_hour", 0, 23),
    RuntimeSetting("diskMaxUsedSpaceRatio", "store.clean_ratio", 10, 95, 100),
    RuntimeSetting("minInSyncReplicas", "min_in_sync_replicas", 1, 64),
    # The names in 4.x and in 5.x
    RuntimeSetting("haSlaveFallbehindMax", "max_slave_gap_bytes", 0, _LONGEST_GAP),
    RuntimeSetting("haMaxGapNotInSync", "max_slave_gap_bytes", 0, _LONGEST_GAP),
)
_READ_ONLY = (
    RuntimeSetting("brokerClusterName", "cluster_name"),
    RuntimeSetting("brokerName", "broker_name"),
    RuntimeSetting("brokerId", "broker_id"),
    RuntimeSetting("brokerIP1", "advertised_host"),
    RuntimeSetting("brokerIP2", "advertised_host"),
    RuntimeSetting("inSyncReplicas", "copies_wanted"),
    RuntimeSetting("slaveTimeout", "slave_timeout_s", unit=1000),
    RuntimeSetting("haTransferBatchSize", "ha_chunk_bytes"),
    RuntimeSetting("slaveReadEnable", "slave_reads"),
    RuntimeSetting("flushDiskType", "flush"),
    RuntimeSetting("flushIntervalCommitLog", "flush_interval_s", unit=1000),
    RuntimeSetting("syncFlushTimeout", "flush_timeout_s", unit=1000),
    RuntimeSetting("storePathRootDir", "data_dir"),
    RuntimeSetting("mappedFileSizeCommitLog", "store.log_file_size"),
    RuntimeSetting("mappedFileSizeConsumeQueue", "store.queue_file_size"),
    RuntimeSetting("maxHashSlotNum", "store.index_slots"),
    RuntimeSetting("maxIndexNum", "store.index_entries"),
)
_SETTINGS = _CHANGEABLE + _READ_ONLY
_GIVEN_BY: Mapping[str, tuple[str, ...]] = {
    "advertised_host": ("advertise_host", "listen_host"),
    "copies_wanted": ("in_sync_replicas", "replication"),
}
"""Fields that a computed value comes from, the first one that was given."""
_COMPUTED: Mapping[str, tuple[str, ...]] = {
    "namesrvAddr": ("name_servers",),
    "brokerRole": ("replication", "broker_id"),
    "haListenPort": ("ha_port", "port"),
    "listenPort": ("port",),
    "messageDelayLevel": ("store.delay_levels_ms",),
}
_AT_RUN_TIME = "changed while it runs"
CHANGEABLE: Mapping[str, RuntimeSetting] = {setting.name: setting for setting in _CHANGEABLE}


def config_lines(broker: Broker) -> str:
    """All settings in force as `name=value` lines."""
    values = {setting.name: setting.read(broker.config) for setting in _SETTINGS}
    values["namesrvAddr"] = ";".join(broker.config.name_servers)
    values["brokerRole"] = "SLAVE" if broker.config.is_slave else broker.config.replication.value
    values["haListenPort"] = str(broker.replication.ha_port)
    values["listenPort"] = broker.address.rpartition(":")[2]
    values["brokerPermission"] = str(PERM_READ_WRITE)
    # Apache's default is the number of processors, and `mqadmin exportMetrics` takes it for that.
    values["clientCallbackExecutorThreads"] = str(os.cpu_count() or 1)
    values["messageDelayLevel"] = format_delay_levels(broker.config.store.delay_levels_ms)
    return "".join(f"{name}={values[name]}\n" for name in sorted(values))


def setting_origins(config: BrokerConfig) -> dict[str, str] | None:
    """Where settings in force were given, by Apache's names; the others have their defaults. None
    for a configuration that a program has made."""
    if config.origins is None:
        return None
    given = dict(config.origins)
    fields = {each.name: _GIVEN_BY.get(each.field, (each.field,)) for each in _SETTINGS}
    found = {
        name: next(filter(given.get, names), None)
        for name, names in {**fields, **_COMPUTED}.items()
    }
    return {name: given[field] for name, field in found.items() if field is not None}


def change_config(broker: Broker, wanted: Mapping[str, str]) -> None:
    """Change all these settings or none. Raises RequestRefused naming the first bad one."""
    values: dict[str, Any] = {}
    for name, text in wanted.items():
        setting = CHANGEABLE.get(name)
        if setting is None:
            text = f"{name} cannot be changed on a running broker; {', '.join(CHANGEABLE)} can"
            raise RequestRefused(ResponseCode.NO_PERMISSION, text)
        values[setting.field] = setting.parse(text)
    config = _changed(broker.config, values)
    broker.config = config
    broker.store.set_retention(config.store)
    broker.notices.is_enabled = config.notify_consumer_ids_changed
    broker.groups.auto_create = config.auto_create_group
    broker.groups.max_groups = config.max_groups
    broker.replication.replicas.least = config.min_in_sync_replicas
    broker.replication.replicas.max_gap_bytes = config.max_slave_gap_bytes
    if broker.durability.copies is not None:
        broker.durability.copies.check()
    if not {"auto_create_topic", "default_queues"}.isdisjoint(values):
        _change_template(broker)


def _changed(config: BrokerConfig, values: Mapping[str, Any]) -> BrokerConfig:
    own = {field: value for field, value in values.items() if not field.startswith("store.")}
    of_store = {
        field.removeprefix("store."): value for field, value in values.items() if field not in own
    }
    clean_ratio = of_store.pop("clean_ratio", None)
    try:
        store = replace(config.store, **of_store)
        if clean_ratio is not None:
            store = store.with_clean_ratio(clean_ratio)
        return replace(config, **own, store=store, origins=_changed_origins(config, values))
    except ConfigError as error:  # settings that contradict each other
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error


def _changed_origins(
    config: BrokerConfig, values: Mapping[str, Any]
) -> tuple[tuple[str, str], ...] | None:
    if config.origins is None:
        return None
    return tuple({**dict(config.origins), **dict.fromkeys(values, _AT_RUN_TIME)}.items())


def _change_template(broker: Broker) -> None:
    """Let TBW102 be inherited by new topics, or not, as auto-creation is switched on or off."""
    config = broker.config
    if broker.topics.is_copy:
        return
    perm = PERM_READ_WRITE | (PERM_INHERIT if config.auto_create_topic else 0)
    if config.auto_create_topic or AUTO_CREATE_TOPIC in broker.topics:
        broker.topics.put(plain_topic(AUTO_CREATE_TOPIC, config.default_queues, perm))
