"""The options of the source that reads log files."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sparrowmq.spark.errors import OptionError
from sparrowmq.spark.option_values import (
    KnownOptions,
    read_names,
    read_options,
    read_size,
    read_topics,
)
from sparrowmq.spark.schema import READ_COLUMNS, SparkColumn, choose_columns


class OnDamage(StrEnum):
    """What happens to bytes that are not records."""

    FAIL = "fail"
    COLUMN = "column"
    """A separate row, with the place and, in the column damage, the reason; all else is null."""
    SKIP = "skip"


LOG_OFFSET = SparkColumn("logOffset", "bigint", "where its record begins in the log")
DAMAGE = SparkColumn("damage", "string", "what is wrong with the bytes there, null for a message")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """What to read, and how."""

    path: Path
    """A store directory, or its directory commitlog; every executor must find it at this path."""
    topics: tuple[str, ...] = ()
    """Only messages of these topics; of all topics if empty."""
    on_damage: OnDamage = OnDamage.FAIL
    columns: tuple[SparkColumn, ...] = (*READ_COLUMNS, LOG_OFFSET)
    """`columns` names the wanted ones."""
    broker_name: str | None = None
    """The value of the column brokerName, which the files do not contain."""
    max_bytes_per_partition: int = 64 * 1024 * 1024
    """About how much of the log one task reads."""


def parse_log_options(options: Mapping[str, str]) -> LogOptions:
    """The options of a reader. Raises OptionError that names the option and what is allowed."""
    values = read_options(options, LOG_OPTIONS, "the log source")
    if "path" not in values:
        raise OptionError("path", "missing; give the directory of a store")
    offered = [*READ_COLUMNS, LOG_OFFSET]
    if values.get("on_damage") is OnDamage.COLUMN:
        offered.append(DAMAGE)
    values["columns"] = choose_columns(offered, values.get("columns"))
    return LogOptions(**values)


def _path(text: str) -> Path:
    path = Path(text.removeprefix("file://").removeprefix("file:"))  # Java writes file:/data
    if not path.is_absolute():
        raise ValueError("must be an absolute path, as tasks run in directories of their own")
    return path


def _on_damage(text: str) -> OnDamage:
    try:
        return OnDamage(text.lower())
    except ValueError:
        raise ValueError(f"must be one of {', '.join(OnDamage)}") from None


LOG_OPTIONS: KnownOptions = {
    "path": ("path", _path),
    "topic": ("topics", read_topics),
    "onDamage": ("on_damage", _on_damage),
    "columns": ("columns", read_names),
    "brokerName": ("broker_name", str),
    "maxBytesPerPartition": ("max_bytes_per_partition", read_size),
}
