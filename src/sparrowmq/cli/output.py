"""What commands print: tables for people, tab-separated lines for pipes, JSON for programs.

    Report ── as_json   ▶ {"items": [{…}, …], "truncated": false, "errors": [{"broker": …}]}
           ── terminal  ▶ an aligned table, numbers with thousands separators
           ── pipe      ▶ the same columns, one header line, tab-separated, plain numbers;
                          facts and titles are for people, on standard error

A report holds values, never formatted texts, so that all three say the same. An unavailable value
is None and shown as `?`, never as 0. Times are datetimes with a zone and shown in UTC; JSON has
them as text and, under a key that ends with `Ms`, in milliseconds. The kind of a column decides
which keys a row has, so that they are the same whatever is known: null for what is unknown, or for
none.
"""

import json
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, TextIO, TypeAlias

from sparrowmq.admin.values import BrokerFailure
from sparrowmq.clock import utc_text

Value: TypeAlias = bool | int | float | str | datetime | timedelta | Enum | Sequence["Value"] | None
"""A cell. None: the value is unknown. An empty text: there is nothing to show."""

UNKNOWN = "?"
_LEAST = "≥"
_BREAKS = re.compile(r"\s*[\r\n\t]\s*")


class Versions(str):
    """Versions of a server in words for people; RocketMQ's and SparrowMQ's apart for programs."""

    def __new__(cls, text: str, rocketmq: str, sparrowmq: str) -> "Versions":
        made = super().__new__(cls, text)
        made.rocketmq = rocketmq
        made.sparrowmq = sparrowmq
        return made

    rocketmq: str
    sparrowmq: str


class Share(float):
    """A part of a whole, from 0 to 1: a percentage for people, the number for programs."""


class Kind(Enum):
    """What the cells of a column are, which decides about its keys in JSON."""

    TEXT = "text"
    """Texts, lists of them, yes or no; numbers if every cell has one."""
    NUMBER = "number"
    """Numbers. A cell may be empty, which is null in JSON."""
    TIME = "time"
    """Times or empty: a text, and milliseconds under a key of its own."""
    DURATION = "duration"
    """Durations or empty: seconds, under a key that ends with `S`."""
    MIXED = "mixed"
    """A different kind in every row: times are texts in JSON, and durations seconds."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column's title in tables, and its key in JSON."""

    title: str
    key: str
    kind: Kind = Kind.TEXT
    is_approximate: bool = False
    """Whether cells may be pairs of a number and whether it is exact; `≈` marks the others."""
    is_sum: bool = False
    """Whether cells are sums over brokers: `≥` marks them where a broker did not answer."""
    is_versions: bool = False
    """Whether cells are Versions: JSON has SparrowMQ's under a key of its own."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns. `total` says how many there are where only some are shown."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Value]]
    key: str = "items"
    """The key of the rows in a JSON document."""
    title: str = ""
    """A heading, for commands that print more than one table."""
    total: int | None = None
    empty: str = ""
    """What people read instead of a table without rows."""
    more: str = "--limit 0 for all"
    """How to see the rest of a table that is cut."""
    is_counted: bool = True
    """False if it is only known that there are more rows than these."""

    @property
    def is_cut(self) -> bool:
        """Whether there are more rows than these."""
        return self.total is not None and self.total > len(self.rows)


@dataclass(frozen=True, slots=True)
class Report:
    """The answer to a question: tables, and the brokers that did not answer."""

    tables: Sequence[Table]
    errors: Sequence[BrokerFailure] = ()
    facts: dict[str, Value] = field(default_factory=dict)
    """Single values, by their keys in JSON; people see them as lines above the tables."""
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    """The kinds of those that are times or durations."""
    sums: Collection[str] = ()
    """The keys of those that are sums over brokers: `≥` marks them where one did not answer."""
    notes: Sequence[str] = ()
    """Sentences for people, such as what to do next: printed on standard error, not in JSON."""


Columns: TypeAlias = Sequence[tuple[str, str] | tuple[str, str, Kind] | Column]


def table(columns: Columns, rows: Sequence[Sequence[Value]], **more: Any) -> Table:
    """A table whose columns are title and key, with a kind where that is not text, or a Column with
    more details."""
    made = [each if isinstance(each, Column) else Column(*each) for each in columns]
    return Table(made, rows, **more)


# ---- JSON


def document(report: Report) -> dict[str, Any]:
    """The report as one JSON object, whose shape docs/operate.md lists for every command."""
    found: dict[str, Any] = {}
    for key, value in report.facts.items():
        found |= _member(key, report.kinds.get(key, Kind.TEXT), value)
    for each in report.tables:
        found[each.key] = [_object(each.columns, row) for row in each.rows]
    if report.sums or any(column.is_sum for each in report.tables for column in each.columns):
        found["isComplete"] = not report.errors
    found["truncated"] = any(each.is_cut for each in report.tables)
    found["errors"] = [
        {"broker": each.broker, "address": each.address, "text": each.reason}
        for each in report.errors
    ]
    return found


def json_text(found: object, *, indent: int | None = 2) -> str:
    """JSON as commands print it. Streams print one object per line."""
    return json.dumps(found, ensure_ascii=False, indent=indent)


def _object(columns: Sequence[Column], row: Sequence[Value]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for column, value in zip(columns, row, strict=True):
        if column.is_approximate:
            value, is_exact = value if isinstance(value, tuple) else (value, None)
            found |= _member(column.key, column.kind, value)
            found[f"{column.key}IsExact"] = is_exact
            continue
        if column.is_versions:
            of = value if isinstance(value, Versions) else None
            found[column.key] = of and of.rocketmq
            found["sparrowmqVersion"] = of and of.sparrowmq
            continue
        found |= _member(column.key, column.kind, value)
    return found


def _member(key: str, kind: Kind, value: Value) -> dict[str, Any]:
    known = None if value == "" else value
    match kind:
        case Kind.TIME:
            assert known is None or isinstance(known, datetime), f"{key} is {value!r}, no time"
            at_ms = None if known is None else round(known.timestamp() * 1000)
            return {key: _plain(known), f"{key}Ms": at_ms}
        case Kind.DURATION:
            return {f"{key}S": _plain(known)}
        case Kind.NUMBER:
            return {key: _plain(known)}
        case Kind.MIXED:
            return {key: _plain(value)}
        case Kind.TEXT:
            assert not isinstance(value, datetime | timedelta), f"{key} needs a kind"
            return {key: _plain(value)}


def _plain(value: Value) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return utc_text(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str) or not isinstance(value, Sequence):
        return value
    return [_plain(each) for each in value]


# ---- tables


def lines_for_people(report: Report, stream: TextIO | None = None) -> Iterator[str]:
    """The tables as text for a terminal, styled if the stream supports it; names are never
    cut."""
    from sparrowmq.cli.terminal_table import TerminalTables, TextColumn  # rich takes 60 ms

    drawn = TerminalTables(stream)
    yield from fact_lines(report)
    for number, each in enumerate(report.tables):
        if number or report.facts:
            yield ""
        if each.title:
            yield drawn.heading(each.title)
        if each.rows:
            columns = [
                TextColumn(column.title, _is_right(each, index))
                for index, column in enumerate(each.columns)
            ]
            yield from drawn.lines(columns, _texts(each, is_partial=bool(report.errors)))
        elif each.empty:
            yield each.empty


def fact_lines(report: Report) -> Iterator[str]:
    """The single values, in words."""
    for key, value in report.facts.items():
        is_least = key in report.sums and report.errors and value is not None
        yield f"{_words(key)}: {_LEAST if is_least else ''}{cell(value)}"


def lines_for_pipes(each: Table, *, is_partial: bool = False) -> Iterator[str]:
    """A table with tabs between columns."""
    yield "\t".join(column.title for column in each.columns)
    for row in each.rows:
        yield "\t".join(
            _of_column(column, value, is_partial=is_partial, plain=True)
            for column, value in zip(each.columns, row, strict=True)
        )


def cut_note(each: Table) -> str:
    """How many rows there are, if not all are shown."""
    total = f"{each.total:,}" if each.is_counted else f"more than {len(each.rows):,}"
    return f"{len(each.rows):,} of {total}; {each.more}"


def _texts(each: Table, *, is_partial: bool) -> list[list[str]]:
    return [
        [
            _of_column(column, value, is_partial=is_partial)
            for column, value in zip(each.columns, row, strict=True)
        ]
        for row in each.rows
    ]


def _is_right(each: Table, index: int) -> bool:
    """Whether a column has only numbers and empty cells."""
    values = [row[index] for row in each.rows if row[index] != ""]
    return bool(values) and all(map(_is_number, values))


def _is_number(value: Value) -> bool:
    if isinstance(value, tuple) and value:
        value = value[0]
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _of_column(column: Column, value: Value, *, is_partial: bool, plain: bool = False) -> str:
    is_exact = True
    if column.is_approximate and isinstance(value, tuple):
        value, is_exact = value
    is_least = column.is_sum and is_partial and isinstance(value, int | float)
    marks = (_LEAST if is_least else "") + ("" if is_exact else "≈")
    return marks + cell(value, plain=plain)


def cell(value: Value, *, plain: bool = False) -> str:
    """A value as text; `plain` without thousands separators, for programs."""
    match value:
        case None:
            return UNKNOWN
        case bool():
            return "yes" if value else "no"
        case int():
            return str(value) if plain else f"{value:,}"
        case Share():
            return f"{value:.4g}" if plain else f"{value:.0%}"
        case float():
            return _short(value) if plain else _rounded(value)
        case str():
            return harmless(value)
        case datetime():
            return utc_text(value)
        case timedelta():
            return f"{value.total_seconds():.10g}" if plain else duration_text(value)
        case Enum():
            return str(value.value)
        case _:
            return ", ".join(cell(each, plain=plain) for each in value)


def _short(value: float) -> str:
    """Three decimals, or three digits of what is less than 1; JSON has all."""
    return f"{value:.3g}" if abs(value) < 1 else f"{round(value, 3):.15g}"


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}"


def duration_text(value: timedelta) -> str:
    """The two largest units: `3d 4h`, `5m 10s`, `0.2s`."""
    seconds = value.total_seconds()
    if abs(seconds) < 10:
        return f"{seconds:.1f}s"
    sign, left = ("-" if seconds < 0 else ""), round(abs(seconds))
    parts = []
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        number, left = divmod(left, size)
        if number:
            parts.append(f"{number}{unit}")
    return sign + " ".join(parts[:2])


def _words(key: str) -> str:
    """`lastStored` as `last stored`."""
    return "".join(f" {each.lower()}" if each.isupper() else each for each in key)


def one_line(text: str) -> str:
    """A sentence with words of a server in it: Java's brokers answer with several lines, too."""
    return harmless(_BREAKS.sub(" ", text))


def harmless(text: str) -> str:
    """A text on one line, without characters that control the terminal."""
    return "".join(
        each if unicodedata.category(each) not in ("Cc", "Cf") else f"\\x{ord(each):02x}"
        for each in text
    )
