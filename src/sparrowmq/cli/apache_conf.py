"""Apache's broker.conf: known keys become settings, others are named, dangerous ones refused."""

from collections.abc import Callable
from pathlib import Path

from sparrowmq.cli.settings import Given, SettingError

_KEYS: dict[str, tuple[str, Callable[[str], str]]] = {}


def _map(key: str, setting: str, convert: Callable[[str], str] = str.strip) -> None:
    _KEYS[key] = (setting, convert)


_map("brokerClusterName", "cluster-name")
_map("brokerName", "broker-name")
_map("brokerId", "broker-id")
_map("namesrvAddr", "name-servers")
_map("listenPort", "port")
_map("haListenPort", "ha-port")
_map("brokerIP1", "advertise")
_map("bindAddress", "listen")
_map("flushDiskType", "flush")
_map("flushIntervalCommitLog", "flush-interval", lambda text: f"{text}ms")
_map("syncFlushTimeout", "flush-timeout", lambda text: f"{text}ms")
_map("deleteWhen", "store-deletion-hour", lambda text: text.split(";")[0])
_map("fileReservedTime", "store-retention", lambda text: f"{text}h")
_map("mappedFileSizeCommitLog", "store-log-file-size")
_map("mappedFileSizeTimerLog", "store-timer-log-size")
_map("mappedFileSizeConsumeQueue", "store-queue-file-units", lambda text: str(int(text) // 20))
_map("maxHashSlotNum", "store-index-slots")
_map("maxIndexNum", "store-index-entries")
_map("diskMaxUsedSpaceRatio", "store-clean-ratio", lambda text: str(int(text) / 100))
_map("storePathRootDir", "data")
_map("autoCreateTopicEnable", "auto-create-topic")
_map("autoCreateSubscriptionGroup", "auto-create-group")
_map("defaultTopicQueueNums", "default-queues")
_map("maxMessageSize", "max-message")
_map("notifyConsumerIdsChangedEnable", "notify-consumer-ids-changed")
_map("enabledAppendPropCRC", "store-record-crc")

_DANGEROUS = {
    "rocketmqHome": "it names a directory that Apache runs programs from",
    "filterServerNums": "it makes a broker start a shell command",
    "filterDataCleanTimeSpan": "filter servers run code of clients",
    "messageStorePlugIn": "it names a class to load",
    "transientStorePoolEnable": "it acknowledges what is not in any file yet",
    "brokerConfigPath": "it redirects where settings are written",
}


def read_broker_conf(path: Path, warn: Callable[[str], None]) -> dict[str, Given]:
    """The settings in a broker.conf. Raises SettingError for a line or key that is refused."""
    found: dict[str, Given] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        text = line.strip()
        if not text or text.startswith(("#", "!")):
            continue
        key, equals, value = (part.strip() for part in text.partition("="))
        where = f"{path} line {number}"
        if not equals:
            raise SettingError(f"{where} is {text!r}, expected key=value")
        if key in _DANGEROUS:
            raise SettingError(f"{where}: {key} is refused, {_DANGEROUS[key]}; remove the line")
        if key not in _KEYS:
            warn(f"{where}: {key} is not known here and has no effect")
            continue
        setting, convert = _KEYS[key]
        try:
            found[setting] = Given(convert(value), f"{where} {key}")
        except ValueError as error:
            raise SettingError(f"{where}: {key} is {value!r}, {error}") from error
    return found
