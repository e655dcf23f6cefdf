"""Reading options: Spark passes texts, and each becomes a value of the field it sets.

    OPTIONS: KnownOptions = {"pullBytes": ("pull_bytes", read_size), …}
    read_options({"PULLBYTES": "1MiB"}, OPTIONS, "the source")  →  {"pull_bytes": 1048576}

Names are case-insensitive, as everywhere in Spark. A reader such as `read_size` raises ValueError
with what is allowed; `read_options` adds which option it was and what was given.
"""

import json
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, TypeAlias

from sparrowmq.cluster_address import NameServerAddresses, find_name_servers
from sparrowmq.protocol.names import check_topic
from sparrowmq.spark.errors import OptionError
from sparrowmq.spark.offsets import EARLIEST, LATEST, NestedOffsets, flat, read_offsets
from sparrowmq.spark.positions import EPOCHS, Positions
from sparrowmq.spark.wire.cluster import (
    UNKNOWN_EPOCH,
    QueuePosition,
    RemoteCluster,
    split_name_servers,
)

KnownOptions: TypeAlias = Mapping[str, tuple[str, Callable[[str], Any]]]
"""By the option's name: the field it sets, and the function that reads its text or raises
ValueError."""

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_BYTES = {"": 1, "b": 1, "kb": 1 << 10, "kib": 1 << 10, "mb": 1 << 20, "mib": 1 << 20}


_TABLES = "Spark 4.3 hands no options of a table to data sources in Python"
NO_COLUMNS = (
    f"{_TABLES}, and those of rocketmq are kept where it was created without columns: DROP TABLE it"
    " and CREATE TABLE … USING … OPTIONS (…), or give the options to this read"
)
"""For a read of a table that has its own columns."""
NO_TABLES = f'{_TABLES} that write: use df.write.format("rocketmq") with its options'
"""For a write to a table."""


def read_options(
    options: Mapping[str, str], known: KnownOptions, what: str, of_spark: Collection[str] = ()
) -> dict[str, Any]:
    """The fields that the options of `what` set; names in `of_spark` (lower case) are skipped.

    Raises OptionError that names the option and what is allowed.
    """
    names = {name.lower(): name for name in known}
    values: dict[str, Any] = {}
    for given, text in options.items():
        if given.lower() in of_spark:
            continue
        name = names.get(given.lower())
        if name is None:
            raise OptionError(given, _unknown(given.lower(), names, what))
        field, read = known[name]
        try:
            values[field] = read(text.strip())
        except ValueError as error:
            raise OptionError(name, f"{error}, not {text!r}") from error
    return values


_KAFKA_OPTIONS = {
    "kafka.bootstrap.servers": "nameServer",
    "kafka.group.id": "group",
    "groupidprefix": "group",
}
"""Option names of spark-sql-kafka in lower case, and their names here."""


def _unknown(given: str, names: Mapping[str, str], what: str) -> str:
    meant = _KAFKA_OPTIONS.get(given)
    if meant is None and (close := get_close_matches(given, names, 1)):
        meant = names[close[0]]
    hint = f"did you mean {meant}? " if meant in names.values() else ""
    return f"unknown to {what}; {hint}allowed are {', '.join(names.values())}"


def read_servers(text: str) -> str:
    """`host:port`, several with semicolons."""
    try:
        return ";".join(split_name_servers(text))
    except ValueError as error:
        raise ValueError(f"must be host:port, several with semicolons ({error})") from error


NAME_SERVER = "nameServer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How a source or a sink reaches the cluster."""

    name_server: str
    """`host:port`, several separated by semicolons. Without the option, the driver finds them as
    `sparrowmq.cluster_address` says."""
    name_server_origin: str = f"option {NAME_SERVER}"
    """Not an option: where the name servers were configured, for errors."""
    request_timeout_s: float = 10.0
    """How long one request may take."""

    def cluster(self) -> RemoteCluster:
        """The cluster to read from or to write to."""
        return RemoteCluster(
            self.name_server, self.request_timeout_s, origin=self.name_server_origin
        )


def find_servers(
    options: Mapping[str, str], environment: Mapping[str, str] = os.environ
) -> NameServerAddresses:
    """The name servers of the option, or else those of the environment.

    Spark's driver calls this once for a source or a sink, and executors get what it found: they
    have another environment. Raises OptionError.
    """
    given = next((text for name, text in options.items() if name.lower() == "nameserver"), None)
    if given is not None:
        try:
            return NameServerAddresses(split_name_servers(given), f"option {NAME_SERVER}")
        except ValueError as error:
            text = f"must be host:port, several with semicolons ({error}), not {given!r}"
            raise OptionError(NAME_SERVER, text) from error
    try:
        found = find_name_servers(environment=environment)
    except ValueError as error:
        raise OptionError(NAME_SERVER, f"missing, and {error}") from error
    try:
        split_name_servers(";".join(found.addresses))
    except ValueError as error:
        text = f"missing, and {found.origin} has no host:port ({error})"
        raise OptionError(NAME_SERVER, text) from error
    return found


def names_servers(options: Mapping[str, str]) -> bool:
    """Whether the option nameServer is given."""
    return NAME_SERVER.lower() in {name.lower() for name in options}


def set_servers(values: dict[str, Any], servers: NameServerAddresses) -> None:
    """Set the fields `name_server` and `name_server_origin`."""
    values["name_server"] = ";".join(servers.addresses)
    values["name_server_origin"] = servers.origin


def read_topics(text: str) -> tuple[str, ...]:
    """Topic names, separated by commas."""
    topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not topics:
        raise ValueError("must name a topic, or a comma-separated list")
    for topic in topics:
        check_topic(topic)
    return topics


def read_pattern(text: str) -> str:
    """A regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"must be a regular expression ({error})") from error
    if not text:
        raise ValueError("must be a regular expression")
    return text


def read_place(text: str) -> str | Positions:
    """A word, or positions by queue: offsets, with epochs if they come from a checkpoint."""
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    offsets = flat(read_offsets(text, least=-2))
    epochs = flat(read_offsets(json.dumps(json.loads(text).get(EPOCHS, {})), least=0))
    return {
        queue: QueuePosition(offset, epochs.get(queue, UNKNOWN_EPOCH))
        for queue, offset in offsets.items()
    }


def read_times(text: str) -> NestedOffsets:
    """A point in time for each queue."""
    return read_offsets(text, least=0)


def read_flag(text: str) -> bool:
    """True or false."""
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def read_text(text: str) -> str:
    """Any text that is not empty."""
    if not text:
        raise ValueError("must not be empty")
    return text


def read_count(text: str) -> int:
    """A whole number above 0."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError("must be a whole number above 0")
    return int(text)


def read_time_ms(text: str) -> int:
    """A point in time, in milliseconds since 1970: digits are milliseconds, all else is a date."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        time_ms = round(read_moment(text).timestamp() * 1000)
    except ValueError:
        time_ms = -1
    if time_ms < 0:
        example = "2026-11-15, 2026-11-15T13:30 (UTC) or 2026-11-15T13:30+01:00"
        raise ValueError(f"must be a time from 1970 on such as {example}, or milliseconds")
    return time_ms


def read_moment(text: str) -> datetime:
    """A date or a time, in UTC unless it names a zone. Raises ValueError."""
    found = datetime.fromisoformat(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _measure(text: str, units: Mapping[str, float], example: str) -> float:
    found = _NUMBER.fullmatch(text.lower())
    if found is None or found[2] not in units or float(found[1]) <= 0:
        raise ValueError(f"must be a number with its unit such as {example}")
    return float(found[1]) * units[found[2]]


def read_seconds(text: str) -> float:
    """A duration in seconds."""
    return _measure(text, _SECONDS, "60s, 500ms or 15m")


def read_size(text: str) -> int:
    """A number of bytes."""
    return int(_measure(text, _BYTES, "4194304 or 4MiB"))


def read_condition(text: str) -> str:
    """An SQL92 condition; the broker parses it."""
    if not text:
        raise ValueError("must be a condition such as amount > 5")
    return text


def read_names(text: str) -> list[str]:
    """Names of columns."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise ValueError("must name a column, several with commas")
    return names
