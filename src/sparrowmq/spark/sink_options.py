"""The sink's options: texts as Spark hands them over, turned into one typed value."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from sparrowmq.protocol.names import check_group, send_fault
from sparrowmq.spark.errors import OptionError
from sparrowmq.spark.routes import split_name_servers

_OF_SPARK = frozenset({"checkpointlocation"})
"""What Spark passes on although it is for Spark itself."""
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "": 1.0}
_BYTES = {"": 1, "b": 1, "k": 1024, "kb": 1024, "kib": 1024, "m": 1 << 20, "mb": 1 << 20}
_BYTES |= {"mib": 1 << 20}
MAX_MESSAGE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """How rows are sent."""

    name_server: str
    """`host:port`, several with semicolons between."""
    topic: str | None = None
    """Where all rows go, whatever their column topic says."""
    group: str = "sparrowmq-spark"
    """The producer group that brokers see."""
    job_id: str | None = None
    """Names a batch write: under the same one the same rows get the same unique ids."""
    max_rows_per_second: float | None = None
    """At most so many rows a second from each task; coalesce to limit the number of tasks."""
    max_batch_bytes: int = 1 << 20
    """How much goes into one send. More costs memory, less costs requests."""
    max_message_bytes: int = MAX_MESSAGE_BYTES
    """What the brokers take at most (their maxMessageSize)."""
    retry_timeout_s: float = 60.0
    """How long a send may fail before its task does."""
    request_timeout_s: float = 10.0
    """How long one request may take."""


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """The options in a writer. Raises OptionError that names the option and what is allowed."""
    values: dict[str, Any] = {}
    for name, text in options.items():
        lower = name.lower()
        if lower in _OF_SPARK:
            continue
        if lower not in _READERS:
            raise OptionError(name, _unknown(name))
        field, read = _READERS[lower]
        try:
            values[field] = read(text.strip())
        except ValueError as error:
            raise OptionError(_NAMES[lower], f"{error}, not {text!r}") from error
    if "name_server" not in values:
        raise OptionError("nameServer", "missing; give host:port of a name server")
    made = SinkOptions(**values)
    if made.max_batch_bytes > made.max_message_bytes:
        text = f"must be at most maxMessageBytes, {made.max_message_bytes}"
        raise OptionError("maxBatchBytes", f"{text}, not {made.max_batch_bytes}")
    return made


def _unknown(name: str) -> str:
    close = get_close_matches(name.lower(), _NAMES, 1)
    hint = f"did you mean {_NAMES[close[0]]}? " if close else ""
    return f"unknown to the sink; {hint}allowed are {', '.join(_NAMES.values())}"


def _servers(text: str) -> str:
    try:
        return ";".join(split_name_servers(text))
    except ValueError as error:
        raise ValueError(f"must be host:port, several with semicolons ({error})") from error


def _topic(text: str) -> str:
    fault = send_fault(text)
    if fault is not None:
        raise ValueError(fault)
    return text


def _job(text: str) -> str:
    if not text:
        raise ValueError("must have a character")
    return text


def _number(text: str, units: Mapping[str, float], example: str) -> float:
    found = _NUMBER.fullmatch(text.lower())
    if found is None or found[2] not in units or float(found[1]) <= 0:
        raise ValueError(f"must be a number above 0 such as {example}")
    return float(found[1]) * units[found[2]]


def _seconds(text: str) -> float:
    return _number(text, _SECONDS, "60s, 500ms or 2m")


def _size(text: str) -> int:
    return int(_number(text, _BYTES, "1048576 or 1MiB"))


def _rate(text: str) -> float:
    return _number(text, {"": 1.0}, "1000")


_OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "nameServer": ("name_server", _servers),
    "topic": ("topic", _topic),
    "group": ("group", check_group),
    "jobId": ("job_id", _job),
    "maxRowsPerSecond": ("max_rows_per_second", _rate),
    "maxBatchBytes": ("max_batch_bytes", _size),
    "maxMessageBytes": ("max_message_bytes", _size),
    "retryTimeout": ("retry_timeout_s", _seconds),
    "requestTimeout": ("request_timeout_s", _seconds),
}
_READERS = {name.lower(): value for name, value in _OPTIONS.items()}
_NAMES = {name.lower(): name for name in _OPTIONS}
