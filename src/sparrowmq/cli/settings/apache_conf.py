"""Apache's broker.conf: known keys become settings, others are named, dangerous ones refused.

A key has no effect if its promise holds here anyway, or if it is about something that does not
exist here. Keys are refused if they would run programs, or silently break a promise: users and TLS,
a master or slave that is not one, or files in another place.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from sparrowmq.broker.config import Flush
from sparrowmq.cli.settings.apache_roles import (
    COPIES,
    ID,
    ROLE,
    ConfLine,
    replication_of,
    role_problems,
    role_warnings,
)
from sparrowmq.cli.settings.protection import is_protection, protection_missing
from sparrowmq.cli.settings.settings import FoundSettings, Given, SettingError, where_it_belongs

_NO_POOLS = "there are no thread pools here"

_NO_CONTROLLER = "there is no controller that chooses masters"

_NO_ACTING = "a slave takes over when it is started as a master, never by itself"


def _whole(text: str, unit: str) -> int:
    """Parse a number without a unit, as in Apache's files. Raises ValueError."""
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


def _flush(text: str) -> str:
    # Our own words are accepted too; the error lists those that Apache's broker also knows.
    if text.upper() not in {*Flush, *Flush.__members__}:
        raise ValueError(f"must be one of {', '.join(Flush)}")
    return text


def _percent(text: str) -> str:
    return str(_whole(text, "percent") / 100)


TAKEN: dict[str, tuple[str, Callable[[str], str]]] = {
    "brokerClusterName": ("cluster-name", str),
    "brokerName": ("broker-name", str),
    ID: ("broker-id", str),
    "namesrvAddr": ("name-servers", str),
    "listenPort": ("port", str),
    "haListenPort": ("ha-port", str),
    COPIES: ("in-sync-replicas", str),
    "minInSyncReplicas": ("min-in-sync-replicas", str),
    "slaveTimeout": ("slave-timeout", _ms),
    "haSlaveFallbehindMax": ("max-slave-gap", str),
    "haMaxGapNotInSync": ("max-slave-gap", str),
    "haTransferBatchSize": ("ha-chunk", str),
    "slaveReadEnable": ("slave-reads", str),
    "brokerIP1": ("advertise", str),
    "bindAddress": ("listen", str),
    "metricsPromExporterPort": ("metrics-port", str),
    "metricsPromExporterHost": ("metrics-listen", str),
    "flushDiskType": ("flush", _flush),
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
    "diskSpaceCleanForciblyRatio": ("store-force-clean-ratio", _percent),
    "diskSpaceWarningLevelRatio": ("store-refuse-ratio", _percent),
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
        # key, values that hold here anyway and need no warning, and why others have no effect
        ("enablePropertyFilter", ("true",), "SQL92 filters are always on"),
        (
            "metricsExporterType",
            ("PROM",),
            "metrics are pages for Prometheus, unless metrics-port is -1",
        ),
        ("brokerIP2", (), "slaves copy from the address that clients get, brokerIP1"),
        (
            "accessMessageInMemoryMaxRatio",
            (),
            "the system is asked whether a message is in memory; see slave-read-gap",
        ),
        ("totalReplicas", ("1",), "any number of slaves may follow, and those that do are counted"),
        (
            "enableAutoInSyncReplicas",
            ("false",),
            "a send with too few slaves is stored and answered SLAVE_NOT_AVAILABLE",
        ),
        ("allAckInSyncStateSet", ("false",), "a send waits for inSyncReplicas copies"),
        ("enableSlaveActingMaster", ("false",), _NO_ACTING),
        ("supportActingMaster", ("false",), _NO_ACTING),
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
        ("haMasterAddress", ("",), "a slave asks name servers (namesrvAddr) for its master"),
        ("readOnlyCommitLogStorePaths", ("",), "messages in further directories would be missing"),
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
    """Why a key has no effect; empty if no warning is needed, None for an unknown key."""
    if key in NO_EFFECT:
        fitting, why = NO_EFFECT[key]
        return "" if value.lower() in fitting else why
    if key in REFUSED:
        return ""
    if key.endswith(("ThreadPoolNums", "ThreadPoolQueueCapacity", "PoolNums")):
        return _NO_POOLS
    return None


def refusal(key: str, value: str) -> str:
    """Why a line cannot be accepted; empty if it can."""
    harmless, why = REFUSED.get(key, (frozenset(), ""))
    return "" if value.lower() in harmless else why


def setting_of_apache(word: str) -> str | None:
    """The setting that corresponds to one of Apache's keys, however it is spelled."""
    plain = word.replace("_", "").replace("-", "").lower()
    return next((name for key, (name, _) in TAKEN.items() if key.lower() == plain), None)


_ROOT = "storePathRootDir"
_PLACES = {
    "storePathCommitLog": "commitlog",
    "storePathConsumeQueue": "consumequeue",
    "storePathIndex": "index",
    "storeCheckpoint": "checkpoint",
    "abortFile": "abort",
}
"""Keys that name a file or directory, and the only name it can have in the root here. Apache's
broker reads only the first of them; its guides list all five."""
_OLD_SPELLINGS = {
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
}
"""Spellings of RocketMQ 3 and 4."""


def read_broker_conf(path: Path) -> FoundSettings:
    """The settings in a broker.conf, the refused lines, and those without effect."""
    try:
        lines = list(_lines(path))
    except SettingError as error:
        return FoundSettings(problems=error.problems)
    root = next((line for line in lines if line.key == _ROOT), None)
    given: dict[str, Given] = {}
    by_key = {line.key: line for line in lines}
    problems = list(role_problems(by_key))
    warnings = list(role_warnings(by_key))
    if ROLE in by_key and (replication := replication_of(by_key[ROLE].value)) is not None:
        given["replication"] = Given(replication, by_key[ROLE].origin)
    for line in lines:
        key = _OLD_SPELLINGS.get(line.key, line.key)
        if problem := _refused(line, root):
            problems.append(problem)
        elif key in TAKEN:
            setting, convert = TAKEN[key]
            try:
                taken = Given(convert(line.value), line.origin, line.value)
            except ValueError as error:
                problems.append(f"{line.where}: {line.key} is {line.value!r}, {error}")
                continue
            if setting in given and given[setting].value != taken.value:
                problems.append(f"{taken.origin} is given twice, also as {given[setting].origin}")
            given[setting] = taken
        else:
            warnings += _no_effect(line)
    return FoundSettings(given, tuple(problems), tuple(warnings))


def missing_protections(path: Path) -> FoundSettings:
    """Only the refusals of a file that otherwise has no effect: a name server's file in Apache's
    format."""
    try:
        lines = list(_lines(path))
    except SettingError as error:
        return FoundSettings(problems=error.problems)
    return FoundSettings(problems=tuple(filter(None, map(_unprotected, lines))))


def _refused(line: ConfLine, root: ConfLine | None) -> str:
    """Why a line cannot be accepted; empty if it can."""
    if problem := _unprotected(line):
        return problem
    if why := refusal(line.key, line.value):
        return f"{line.where}: {line.key} is refused, {why}; remove the line"
    return _misplaced(line, root) if line.key in _PLACES else ""


def _unprotected(line: ConfLine) -> str:
    missing = protection_missing(line.key, line.value)
    return f"{line.where}: {line.key} is {line.value!r}, but {missing}" if missing else ""


def _no_effect(line: ConfLine) -> Iterator[str]:
    if line.key in _PLACES or line.key == ROLE or is_protection(line.key):
        return
    why_not = without_effect(line.key, line.value)
    if why_not is None:
        why_not = where_it_belongs(line.key)
        if not why_not:
            yield f"{line.where}: {line.key} is not known here and has no effect"
            return
    if why_not:
        yield f"{line.where}: {line.key} has no effect, {why_not}"


def _lines(path: Path) -> Iterator[ConfLine]:
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
        yield ConfLine(where, key, value)


def _misplaced(line: ConfLine, root: ConfLine | None) -> str:
    """Why a key that names a place is refused: files elsewhere would not be found, and topics would
    start empty."""
    name = _PLACES[line.key]
    if root is not None and Path(line.value) == Path(root.value) / name:
        return ""
    expected = f"{root.value.rstrip('/')}/{name}" if root is not None else f"{name} in a {_ROOT}"
    return (
        f"{line.where}: {line.key} is {line.value!r}, it has to be {expected};"
        " move the files there, or make that a link to them, and remove the line"
    )
