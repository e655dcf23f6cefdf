"""Apache's broker.conf: known keys become settings, others are named, dangerous ones refused.

A key without effect is one whose promise holds here anyway, or which is about something that does
not exist here. Refused are keys that would run programs, and keys that would silently break a
promise: a second copy of every message, or a log in another place.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from sparrowmq.cli.settings.settings import Given, SettingError

_NO_POOLS = "there are no thread pools here"

_NO_COPIES = "there is no replication yet"

_NO_CONTROLLER = "there is no controller that chooses masters"

_REFUSED_COPY = "there is no replication yet, and a send would be acknowledged with one copy"


def _whole(text: str, unit: str) -> int:
    """Apache's files have bare numbers. Raises ValueError."""
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"must be a whole number of {unit}, without a unit") from None


def _ms(text: str) -> str:
    return f"{_whole(text, 'milliseconds')}ms"


def _seconds(text: str) -> str:
    return f"{_whole(text, 'seconds')}s"


def _hours(text: str) -> str:
    return f"{_whole(text, 'hours')}h"


def _queue_units(text: str) -> str:
    return str(_whole(text, "bytes") // 20)


def _percent(text: str) -> str:
    return str(_whole(text, "percent") / 100)


TAKEN: dict[str, tuple[str, Callable[[str], str]]] = {
    "brokerClusterName": ("cluster-name", str),
    "brokerName": ("broker-name", str),
    "brokerId": ("broker-id", str),
    "namesrvAddr": ("name-servers", str),
    "listenPort": ("port", str),
    "haListenPort": ("ha-port", str),
    "brokerIP1": ("advertise", str),
    "bindAddress": ("listen", str),
    "flushDiskType": ("flush", str),
    "flushIntervalCommitLog": ("flush-interval", _ms),
    "syncFlushTimeout": ("flush-timeout", _ms),
    "deleteWhen": ("store-deletion-hour", lambda text: text.split(";")[0]),
    "fileReservedTime": ("store-retention", _hours),
    "mappedFileSizeCommitLog": ("store-log-file-size", str),
    "mappedFileSizeTimerLog": ("store-timer-log-size", str),
    "mappedFileSizeConsumeQueue": ("store-queue-file-units", _queue_units),
    "maxHashSlotNum": ("store-index-slots", str),
    "maxIndexNum": ("store-index-entries", str),
    "diskMaxUsedSpaceRatio": ("store-clean-ratio", _percent),
    "storePathRootDir": ("data", str),
    "messageDelayLevel": ("store-delay-levels", lambda text: ",".join(text.split())),
    "autoCreateTopicEnable": ("auto-create-topic", str),
    "autoCreateSubscriptionGroup": ("auto-create-group", str),
    "defaultTopicQueueNums": ("default-queues", str),
    "maxMessageSize": ("max-message", str),
    "maxTransferBytesOnMessageInMemory": ("max-pull", str),
    "maxTransferCountOnMessageInMemory": ("max-pull-count", str),
    "notifyConsumerIdsChangedEnable": ("notify-consumer-ids-changed", str),
    "enabledAppendPropCRC": ("store-record-crc", str),
    "waitTimeMillsInSendQueue": ("busy-lag", _ms),
    "flushConsumerOffsetInterval": ("offsets-save", _ms),
    "registerNameServerPeriod": ("register-interval", _ms),
    "timerMaxDelaySec": ("max-timer-delay", _seconds),
    "transactionTimeOut": ("transaction-timeout", _ms),
    "transactionCheckInterval": ("transaction-check-interval", _ms),
    "transactionCheckMax": ("transaction-check-max", str),
}

NO_EFFECT: dict[str, tuple[frozenset[str], str]] = {
    key: (frozenset(fitting), why)
    for key, fitting, why in (
        # key, values that hold here anyway and need no warning, and why others change nothing
        ("enablePropertyFilter", ("true",), "SQL92 filters are always on"),
        ("brokerIP2", (), _NO_COPIES),
        ("slaveReadEnable", ("false",), _NO_COPIES),
        ("totalReplicas", ("1",), _NO_COPIES),
        ("inSyncReplicas", ("1",), _NO_COPIES),
        ("minInSyncReplicas", ("1",), _NO_COPIES),
        ("enableAutoInSyncReplicas", ("false",), _NO_COPIES),
        ("allAckInSyncStateSet", ("false",), _NO_COPIES),
        ("enableSlaveActingMaster", ("false",), _NO_COPIES),
        ("supportActingMaster", ("false",), _NO_COPIES),
        ("brokerHeartbeatInterval", (), _NO_CONTROLLER),
        ("brokerNotActiveTimeoutMillis", (), _NO_CONTROLLER),
        ("sendHeartbeatTimeoutMillis", (), _NO_CONTROLLER),
        ("controllerAddr", (), _NO_CONTROLLER),
        ("controllerDLegerGroup", (), _NO_CONTROLLER),
        ("controllerDLegerPeers", (), _NO_CONTROLLER),
        ("controllerDLegerSelfId", (), _NO_CONTROLLER),
        ("dLegerGroup", (), "there is no DLedger log"),
        ("dLegerPeers", (), "there is no DLedger log"),
        ("dLegerSelfId", (), "there is no DLedger log"),
    )
}

REFUSED: dict[str, tuple[frozenset[str], str]] = {
    key: (frozenset(harmless), why)
    for key, harmless, why in (
        # key, values that ask for nothing, and why others are refused
        ("rocketmqHome", (), "it names a directory that Apache runs programs from"),
        ("filterServerNums", ("0",), "it makes a broker start a shell command"),
        ("filterDataCleanTimeSpan", (), "filter servers run code of clients"),
        ("messageStorePlugIn", ("",), "it names a class to load"),
        ("transientStorePoolEnable", ("false",), "it acknowledges what is not in any file yet"),
        ("brokerConfigPath", (), "it redirects where settings are written"),
        ("brokerRole", ("async_master",), _REFUSED_COPY),
        ("enableDLegerCommitLog", ("false",), "a DLedger log has another format and its copies"),
        ("enableControllerMode", ("false",), f"{_NO_CONTROLLER}, and without it none would serve"),
        ("enableControllerInNamesrv", ("false",), _NO_CONTROLLER),
        ("brokerConfigPaths", (), "a container of brokers is started by `sparrowmq up --brokers`"),
        (
            "fetchNamesrvAddrByAddressServer",
            ("false",),
            "name servers are not looked up on the web; write them as namesrvAddr",
        ),
    )
}


def without_effect(key: str, value: str) -> str | None:
    """Why a key changes nothing; empty where no warning is due, None for an unknown key."""
    if key in NO_EFFECT:
        fitting, why = NO_EFFECT[key]
        return "" if value.lower() in fitting else why
    if key in REFUSED:
        return ""
    if key.endswith(("ThreadPoolNums", "ThreadPoolQueueCapacity", "PoolNums")):
        return _NO_POOLS
    return None


def refusal(key: str, value: str) -> str:
    """Why a line cannot be accepted; empty when it can."""
    harmless, why = REFUSED.get(key, (frozenset(), ""))
    return "" if value.lower() in harmless else why


def setting_of_apache(word: str) -> str | None:
    """The setting that a key of Apache's is taken over by, however it is written."""
    plain = word.replace("_", "").replace("-", "").lower()
    return next((name for key, (name, _) in TAKEN.items() if key.lower() == plain), None)


_ROOT, _LOG = "storePathRootDir", "storePathCommitLog"


class _ConfLine(NamedTuple):
    where: str
    key: str
    value: str


def read_broker_conf(path: Path, warn: Callable[[str], None]) -> dict[str, Given]:
    """The settings in a broker.conf. Raises SettingError for a line or key that is refused."""
    found: dict[str, Given] = {}
    lines = list(_lines(path))
    _check_log_path({line.key: line for line in lines})
    for where, key, value in lines:
        if why := refusal(key, value):
            raise SettingError(f"{where}: {key} is refused, {why}; remove the line")
        if key in TAKEN:
            setting, convert = TAKEN[key]
            try:
                found[setting] = Given(convert(value), f"{where}: {key}", value)
            except ValueError as error:
                raise SettingError(f"{where}: {key} is {value!r}, {error}") from error
        elif key != _LOG:
            why_not = without_effect(key, value)
            if why_not is None:
                warn(f"{where}: {key} is not known here and has no effect")
            elif why_not:
                warn(f"{where}: {key} has no effect, {why_not}")
    return found


def _lines(path: Path) -> Iterator[_ConfLine]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SettingError(f"{path} is neither TOML nor a broker.conf in UTF-8: {error}") from error
    for number, line in enumerate(text.split("\n"), start=1):
        content = line.strip()
        if not content or content.startswith(("#", "!")):
            continue
        key, equals, value = (part.strip() for part in content.partition("="))
        where = f"{path} line {number}"
        if not equals:
            raise SettingError(f"{where} is {content!r}, must be key=value; TOML ends in .toml")
        yield _ConfLine(where, key, value)


def _check_log_path(lines: dict[str, _ConfLine]) -> None:
    """A log elsewhere would not be found, and its topics would start empty."""
    log, root = lines.get(_LOG), lines.get(_ROOT)
    if log is None or (root is not None and Path(log.value) == Path(root.value) / "commitlog"):
        return
    expected = f"{root.value}/commitlog" if root is not None else f"commitlog in a {_ROOT}"
    raise SettingError(
        f"{log.where}: {_LOG} is {log.value!r}, the log has to be {expected};"
        " move it there or make that a link to it"
    )
