"""The sources' options: texts as Spark passes them, turned into one typed value.

Names and meanings are those of spark-sql-kafka wherever it has the same option.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sparrowmq.cluster_address import NameServerAddresses
from sparrowmq.protocol.names import check_group
from sparrowmq.protocol.sql92 import check_sql92
from sparrowmq.protocol.tags import tags_fault
from sparrowmq.spark.errors import OptionError
from sparrowmq.spark.offsets import (
    EARLIEST,
    LATEST,
    Assignment,
    NestedOffsets,
    flat,
    read_assignment,
)
from sparrowmq.spark.option_values import (
    NAME_SERVER,
    NO_COLUMNS,
    KnownOptions,
    ServerOptions,
    find_servers,
    read_condition,
    read_count,
    read_flag,
    read_names,
    read_options,
    read_pattern,
    read_place,
    read_seconds,
    read_servers,
    read_size,
    read_time_ms,
    read_times,
    read_topics,
    set_servers,
)
from sparrowmq.spark.positions import Positions
from sparrowmq.spark.schema import PROPERTIES, SparkColumn, read_columns
from sparrowmq.spark.wire.cluster import Queue

_OF_SPARK = frozenset({"checkpointlocation", "path"})
"""Options that Spark passes on although they are meant for Spark itself."""


@dataclass(frozen=True, slots=True)
class At:
    """A place in queues: a word, positions, or times in ms since 1970."""

    word: str | None = None
    positions: Positions | None = None
    """By queue; offset -2 is the earliest, -1 the latest."""
    times: NestedOffsets | None = None
    time_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(ServerOptions):
    """What to read, and how."""

    subscribe: tuple[str, ...] = ()
    """Topics, separated by commas."""
    subscribe_pattern: str | None = None
    """A regular expression that whole topic names have to match."""
    assign: Assignment | None = None
    """Single queues: `{"orders": {"broker-a": [0, 1]}}`."""
    starting: At = field(default_factory=At)
    """`startingOffsets`, `startingTimestamp` or `startingOffsetsByTimestamp`."""
    ending: At = field(default_factory=At)
    """The same options for the end of a batch; ends are exclusive."""
    fail_on_data_loss: bool = True
    """False: skip messages that were deleted before they were read, with a warning."""
    min_partitions: int | None = None
    """Split queues until there are at least this many tasks."""
    max_records_per_partition: int | None = None
    """Split queues so that no task reads more messages than this."""
    max_offsets_per_trigger: int | None = None
    """At most this many messages per micro-batch, shared in proportion to the queues' backlogs."""
    min_offsets_per_trigger: int | None = None
    """Wait until there are this many messages, but no longer than `maxTriggerDelay`."""
    max_trigger_delay_s: float = 15 * 60.0
    group: str | None = None
    """The consumer group under which brokers and operators see the progress."""
    tags: str | None = None
    """`created || paid`: the broker sends only these."""
    sql: str | None = None
    """An SQL92 condition on properties, checked by the broker."""
    columns: tuple[SparkColumn, ...] = read_columns()
    """`columns` names the wanted ones; `includeProperties=false` leaves out the map."""
    push_down: bool = False
    """Apply Spark's filters on queues, offsets, times, tags and keys here. Off by default, because
    Spark 4.3, once a DataFrame was filtered, reads it without the filter as if it still had it:
    with this on, load a new DataFrame for every query."""
    check_crc: bool = False
    """Compare every body with its recorded CRC; costs about a tenth of the speed."""
    pull_messages: int = 4096
    """Messages to ask for at once. Brokers may give fewer: Apache's 32 by default."""
    pull_bytes: int = 4 << 20
    """Bytes to ask for at once, where the broker supports that (SparrowMQ does)."""
    retry_timeout_s: float = 60.0
    """How long a broker may be away before the query fails."""


def parse_options(
    options: Mapping[str, str],
    *,
    stream: bool | None = None,
    servers: NameServerAddresses | None = None,
) -> Options:
    """The options of a reader; `stream` is None while it is not known whether it streams, `servers`
    while the name servers have not been found.

    Raises OptionError that names the option and what is allowed.
    """
    values = read_options(options, SOURCE_OPTIONS, "the source", _OF_SPARK)
    _check_what(values, has_path="path" in {name.lower() for name in options})
    set_servers(values, servers or find_servers(options))
    values["starting"] = _place(values, "starting", stream)
    values["ending"] = _place(values, "ending", stream)
    _choose_columns(values)
    _check_filters(values)
    if stream is False:
        _check_order(values["starting"], values["ending"])
        _refuse_in(values, "batch", _STREAM_ONLY)
    return Options(**values)


_WAYS = {"subscribe": "subscribe", "subscribe_pattern": "subscribePattern", "assign": "assign"}
WAYS_TO_CHOOSE = tuple(_WAYS.values())
"""Options that choose what is read."""


def _check_what(values: dict[str, Any], *, has_path: bool) -> None:
    given = [name for key, name in _WAYS.items() if key in values]
    if not given and has_path:
        raise OptionError("path", "a topic is no path: use the option subscribe")
    if not given:
        # A table of Spark's catalog comes without any options.
        hint = "" if values else f". If this is a table: {NO_COLUMNS}"
        text = f"missing; give subscribe, subscribePattern or assign{hint}"
        raise OptionError("subscribe", text)
    if len(given) > 1:
        raise OptionError(given[1], f"contradicts {given[0]}; give only one of the two")


def _place(values: dict[str, Any], side: str, stream: bool | None) -> At:
    """`starting…` or `ending…`: at most one of its three spellings."""
    given = {
        suffix: values.pop(f"{side}{suffix}")
        for suffix in ("Offsets", "Timestamp", "OffsetsByTimestamp")
        if f"{side}{suffix}" in values
    }
    if len(given) > 1:
        first, second = list(given)[:2]
        text = f"contradicts {side}{first}; give only one of the two"
        raise OptionError(f"{side}{second}", text)
    if side == "ending" and given and stream:
        raise OptionError(f"ending{next(iter(given))}", "a stream has no end; remove it")
    at = _at(given)
    if stream is False:
        _check_batch_place(side, at)
    if at == At():
        return At(word=_default_word(side, stream))
    return at


def _at(given: dict[str, Any]) -> At:
    if "Timestamp" in given:
        return At(time_ms=given["Timestamp"])
    if "OffsetsByTimestamp" in given:
        return At(times=given["OffsetsByTimestamp"])
    where = given.get("Offsets")
    return At(word=where) if where is None or isinstance(where, str) else At(positions=where)


def _default_word(side: str, stream: bool | None) -> str:
    return EARLIEST if side == "starting" and not stream else LATEST


def _check_batch_place(side: str, at: At) -> None:
    wrong = LATEST if side == "starting" else EARLIEST
    mark = -1 if side == "starting" else -2
    marks = {place.offset for place in (at.positions or {}).values()}
    if at.word == wrong or mark in marks:
        verb = "start" if side == "starting" else "end"
        raise OptionError(f"{side}Offsets", f"a batch cannot {verb} at {wrong} ({mark})")


def _check_order(starting: At, ending: At) -> None:
    """Refuse an end time before its start. Offsets are checked by the plan, because only brokers
    know their order; the same time twice is an empty range, and allowed.
    """
    named = sorted({*flat(starting.times or {}), *flat(ending.times or {})})
    for queue in named or (None,):
        start, end = _time_of(starting, queue), _time_of(ending, queue)
        if start is not None and end is not None and start > end:
            is_for_all = starting.time_ms is not None
            option = "startingTimestamp" if is_for_all else "startingOffsetsByTimestamp"
            of_queue = f" of {queue}" if queue is not None else ""
            text = f"{_moment(start)} is after the end{of_queue}, {_moment(end)}; must be earlier"
            raise OptionError(option, text)


_CLOCKS_DIFFER_MS = 60_000


def check_has_begun(options: Options, now_ms: int) -> None:
    """Raises OptionError for a batch that would start in the future, which is never intended: such
    a time is in another zone, or not in milliseconds."""
    starting = options.starting
    latest = max([starting.time_ms or 0, *flat(starting.times or {}).values()])
    if latest > now_ms + _CLOCKS_DIFFER_MS:
        option = "startingTimestamp" if starting.times is None else "startingOffsetsByTimestamp"
        text = f"{_moment(latest)} is in the future, so a batch has nothing to read"
        raise OptionError(option, f"{text}; times without a zone are UTC, numbers milliseconds")


def _time_of(at: At, queue: Queue | None) -> int | None:
    if at.times is None or queue is None:
        return at.time_ms
    return flat(at.times).get(queue)


def _moment(time_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()} ({time_ms} ms)"
    except (ValueError, OverflowError, OSError):  # after the year 9999: microseconds, perhaps
        return f"{time_ms} ms"


def _choose_columns(values: dict[str, Any]) -> None:
    with_properties = values.pop("includeProperties", True)
    named: list[str] | None = values.pop("columns", None)
    columns = read_columns(named)
    if not with_properties:
        if named is not None and PROPERTIES in columns:
            raise OptionError("includeProperties", "false contradicts properties in columns")
        columns = tuple(column for column in columns if column is not PROPERTIES)
    values["columns"] = columns


def _check_filters(values: dict[str, Any]) -> None:
    if "tags" in values and "sql" in values:
        raise OptionError("sql", "contradicts tags; give only one of the two")
    if "tags" in values:
        fault = tags_fault(values["tags"], for_comma="the option sql with TAGS = 'a,b'")
        if fault is not None:
            raise OptionError("tags", f"is {values['tags']!r}, {fault}")
    if "sql" in values:
        _check_condition(values["sql"])
    least, most = values.get("min_offsets_per_trigger"), values.get("max_offsets_per_trigger")
    if least is not None and most is not None and least > most:
        text = f"must be at most maxOffsetsPerTrigger, {most}, not {least}"
        raise OptionError("minOffsetsPerTrigger", text)


def _check_condition(text: str) -> None:
    try:
        check_sql92(text)
    except ValueError as error:
        raise OptionError("sql", str(error)) from error
    except ModuleNotFoundError:
        pass  # a driver may have no more than an executor; then the broker says what is wrong


def _refuse_in(values: dict[str, Any], what: str, names: dict[str, str]) -> None:
    for key, name in names.items():
        if key in values:
            raise OptionError(name, f"has no meaning in a {what} read; remove it")


SOURCE_OPTIONS: KnownOptions = {
    NAME_SERVER: ("name_server", read_servers),
    "subscribe": ("subscribe", read_topics),
    "subscribePattern": ("subscribe_pattern", read_pattern),
    "assign": ("assign", read_assignment),
    "startingOffsets": ("startingOffsets", read_place),
    "startingTimestamp": ("startingTimestamp", read_time_ms),
    "startingOffsetsByTimestamp": ("startingOffsetsByTimestamp", read_times),
    "endingOffsets": ("endingOffsets", read_place),
    "endingTimestamp": ("endingTimestamp", read_time_ms),
    "endingOffsetsByTimestamp": ("endingOffsetsByTimestamp", read_times),
    "failOnDataLoss": ("fail_on_data_loss", read_flag),
    "minPartitions": ("min_partitions", read_count),
    "maxRecordsPerPartition": ("max_records_per_partition", read_count),
    "maxOffsetsPerTrigger": ("max_offsets_per_trigger", read_count),
    "minOffsetsPerTrigger": ("min_offsets_per_trigger", read_count),
    "maxTriggerDelay": ("max_trigger_delay_s", read_seconds),
    "group": ("group", check_group),
    "tags": ("tags", str),
    "sql": ("sql", read_condition),
    "columns": ("columns", read_names),
    "includeProperties": ("includeProperties", read_flag),
    "pushDown": ("push_down", read_flag),
    "checkCrc": ("check_crc", read_flag),
    "pullMessages": ("pull_messages", read_count),
    "pullBytes": ("pull_bytes", read_size),
    "retryTimeout": ("retry_timeout_s", read_seconds),
    "requestTimeout": ("request_timeout_s", read_seconds),
}
_STREAM_ONLY = {
    "max_offsets_per_trigger": "maxOffsetsPerTrigger",
    "min_offsets_per_trigger": "minOffsetsPerTrigger",
    "max_trigger_delay_s": "maxTriggerDelay",
    "group": "group",
}
