"""How commands print: the same report for people, pipes and programs."""

import io
import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.values import BrokerFailure
from sparrowmq.cli.option_types import Moment, read_moment
from sparrowmq.cli.output import (
    Column,
    Kind,
    Report,
    Table,
    Value,
    cell,
    document,
    duration_text,
    json_text,
    lines_for_people,
    lines_for_pipes,
    table,
)
from sparrowmq.cli.shell import Shell, shell_options
from sparrowmq.testing import cluster

_STORED = datetime(2026, 11, 15, 13, 30, tzinfo=UTC)


def _report(rows: Sequence[Sequence[Value]], total: int | None = None) -> Report:
    columns = [("GROUP", "group"), ("LAG", "lag"), ("STORED", "stored")]
    return Report([table(columns, rows, total=total)])


def test_people_get_aligned_columns_with_numbers_to_the_right() -> None:
    report = _report([["billing", 1234567, _STORED], ["a", None, ""]])
    assert list(lines_for_people(report)) == [
        "GROUP          LAG  STORED",
        "billing  1,234,567  2026-11-15T13:30:00Z",
        "a                ?",
    ]


def test_pipes_get_the_same_columns_with_tabs_and_plain_numbers() -> None:
    report = _report([["billing", 1234567, _STORED]])
    assert list(lines_for_pipes(report.tables[0])) == [
        "GROUP\tLAG\tSTORED",
        "billing\t1234567\t2026-11-15T13:30:00Z",
    ]


def test_programs_get_one_document_with_times_twice_and_errors_by_broker() -> None:
    report = Report(
        [table([("LAG", "lag"), ("STORED", "stored", Kind.TIME)], [[7, _STORED]], total=9)],
        errors=[BrokerFailure("broker-b", "127.0.0.1:1", "no answer in 5 s")],
        facts={"group": "billing"},
    )
    assert json.loads(json_text(document(report))) == {
        "group": "billing",
        "items": [{"lag": 7, "stored": "2026-11-15T13:30:00Z", "storedMs": 1794749400000}],
        "truncated": True,
        "errors": [{"broker": "broker-b", "address": "127.0.0.1:1", "text": "no answer in 5 s"}],
    }


KINDS: list[tuple[Kind, Value, dict[str, object]]] = [
    (Kind.TEXT, "x", {"key": "x"}),
    (Kind.TEXT, "", {"key": ""}),
    (Kind.TEXT, None, {"key": None}),
    (Kind.NUMBER, 7, {"key": 7}),
    (Kind.NUMBER, "", {"key": None}),
    (Kind.NUMBER, None, {"key": None}),
    (Kind.MIXED, 7, {"key": 7}),
    (Kind.MIXED, _STORED, {"key": "2026-11-15T13:30:00Z"}),
    (Kind.TIME, _STORED, {"key": "2026-11-15T13:30:00Z", "keyMs": 1794749400000}),
    (Kind.TIME, "", {"key": None, "keyMs": None}),
    (Kind.TIME, None, {"key": None, "keyMs": None}),
    (Kind.DURATION, timedelta(seconds=3.2), {"keyS": 3.2}),
    (Kind.DURATION, "", {"keyS": None}),
    (Kind.DURATION, None, {"keyS": None}),
]


@pytest.mark.parametrize(("kind", "value", "expected"), KINDS)
def test_keys_follow_from_the_kind_of_a_column_and_never_from_the_value(
    kind: Kind, value: Value, expected: dict[str, object]
) -> None:
    found = document(Report([table([("TITLE", "key", kind)], [[value]])]))
    assert found["items"] == [expected]
    fact = document(Report([], facts={"key": value}, kinds={"key": kind}))
    assert {name: fact[name] for name in expected} == expected


def test_an_estimate_is_marked_as_one() -> None:
    columns = [Column("MATCHING", "matching", Kind.NUMBER, is_approximate=True)]
    report = Report([Table(columns, [[(7, True)], [(9000, False)], [None]])])
    assert list(lines_for_people(report)) == ["MATCHING", "       7", "  ≈9,000", "       ?"]
    assert document(report)["items"] == [
        {"matching": 7, "matchingIsExact": True},
        {"matching": 9000, "matchingIsExact": False},
        {"matching": None, "matchingIsExact": None},
    ]


def test_a_sum_without_some_brokers_is_marked_as_at_least_that() -> None:
    columns = [Column("GROUP", "group"), Column("LAG", "lag", is_sum=True)]
    away = [BrokerFailure("broker-b", "127.0.0.1:1", "no answer in 5 s")]
    report = Report([table(columns, [["billing", 1247], ["audit", None]])], away)
    assert list(lines_for_people(report)) == [
        "GROUP       LAG",
        "billing  ≥1,247",
        "audit         ?",
    ]
    assert list(lines_for_pipes(report.tables[0], is_partial=True))[1:] == [
        "billing\t≥1247",
        "audit\t?",
    ]
    assert document(report)["items"][0] == {"group": "billing", "lag": 1247}


@pytest.mark.parametrize(
    ("value", "text", "plain"),
    [
        (None, "?", "?"),
        (True, "yes", "yes"),
        (0, "0", "0"),
        (12.345, "12.3", "12.345"),
        (1234.5, "1,234", "1234.5"),
        (0.09410878976, "0.1", "0.0941"),
        (1234567.00049, "1,234,567", "1234567"),
        (timedelta(seconds=0.24), "0.2s", "0.24"),
        (timedelta(days=1, hours=2, minutes=3), "1d 2h", "93780"),
        (["a", 1], "a, 1", "a, 1"),
        ("line\nbreak\x1b[31m", "line\\x0abreak\\x1b[31m", "line\\x0abreak\\x1b[31m"),
        (_STORED.astimezone(timezone(timedelta(hours=8))), "2026-11-15T13:30:00Z", None),
    ],
)
def test_a_cell_is_written_as_people_write_it(value: Value, text: str, plain: str | None) -> None:
    assert cell(value) == text
    assert cell(value, plain=True) == (plain or text)


def test_a_negative_duration_keeps_its_sign() -> None:
    assert duration_text(timedelta(minutes=-5)) == "-5m"


class Terminal(io.StringIO):
    """A stream that shows styles."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("variables", "title"),
    [
        ({"TERM": "xterm-256color"}, "\x1b[1mGROUP\x1b[0m"),
        ({"TERM": "dumb"}, "GROUP"),
    ],
)
@pytest.mark.parametrize("columns", ["40", "200"])
def test_a_row_is_one_line_at_a_terminal_of_any_width(
    columns: str, variables: dict[str, str], title: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**variables, "COLUMNS": columns}.items():
        monkeypatch.setenv(name, value)
    long = "[bold]" + "a-very-long-name " * 8 + "end"
    rows: list[list[Value]] = [[long, 1234567, ""], ["b", None, _STORED]]
    lines = list(lines_for_people(_report(rows), Terminal()))
    assert len(lines) == 3
    assert lines[0].startswith(title)
    assert lines[1] == f"{long}  1,234,567"
    assert lines[2].split() == ["b", "?", "2026-11-15T13:30:00Z"]


def test_many_rows_are_drawn_in_slices_of_the_same_widths() -> None:
    rows: list[list[Value]] = [[f"group-{number}", number, ""] for number in range(1201)]
    header, *lines = lines_for_people(_report(rows))
    assert len(lines) == 1201
    assert {len(line) for line in lines} == {len("group-1200") + 2 + len("1,200")}
    assert header == "GROUP         LAG  STORED"


def test_rich_is_loaded_for_a_terminal_only() -> None:
    code = (
        "import sys; from sparrowmq.cli.main import app\n"
        "app(['rebalance', 'simulate', '--queues', '4', '--members', '2'], standalone_mode=False)\n"
        "print('rich' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "False"


def test_wide_characters_keep_columns_aligned() -> None:
    lines = list(
        lines_for_people(Report([table([("A", "a"), ("B", "b")], [["消息", 1], ["x", 2]])]))
    )
    assert lines == ["A     B", "消息  1", "x     2"]


# ---- times


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("2026-11-15", "2026-11-15T00:00:00+00:00"),
        ("2026-11-15T13:30", "2026-11-15T13:30:00+00:00"),
        ("2026-11-15T13:30+08:00", "2026-11-15T13:30:00+08:00"),
        ("now", "2026-11-15T13:30:00+00:00"),
        ("-30m", "2026-11-15T13:00:00+00:00"),
        ("-2h", "2026-11-15T11:30:00+00:00"),
    ],
)
def test_times_are_dates_or_relative(text: str, iso: str) -> None:
    assert read_moment(text, 1794749400000).isoformat() == iso


def test_an_invalid_time_is_refused_with_the_allowed_forms() -> None:
    for kind, mentions in ((Moment(), True), (Moment(is_relative=False), False)):
        for wrong in ("yesterday", "-x", "-5", *([] if mentions else ["-30m"])):
            with pytest.raises(click.BadParameter) as caught:
                kind.convert(wrong, None, None)
            assert "is not a time; write 2026-11-15" in str(caught.value)
            assert ("-30m" in str(caught.value).split(";")[1]) == mentions
    with pytest.raises(click.BadParameter, match="write -5m for so long ago, 2026-11-15"):
        Moment().convert("5m", None, None)


# ---- the shell


@click.command()
@shell_options(watch=True)
def look(shell: Shell) -> None:
    async def work(admin: Admin) -> Report:
        names = sorted((await admin.clusters()).items())
        rows = [[name, brokers] for name, brokers in names]
        errors = [BrokerFailure("broker-z", "127.0.0.1:1", "away")] if shell.is_verbose else []
        return Report([table([("CLUSTER", "cluster"), ("BROKERS", "brokers")], rows)], errors)

    shell.report(work)


@click.command()
@click.option("--yes", is_flag=True)
@shell_options()
def drop(yes: bool, shell: Shell) -> None:
    shell.confirm("Everything in orders is deleted", "orders", yes=yes)
    shell.done("deleted")


def test_a_report_comes_from_the_cluster_that_the_options_name() -> None:
    with cluster() as running:
        at = ["-n", running.name_server]
        piped = CliRunner().invoke(look, at)
        assert piped.stdout == "CLUSTER\tBROKERS\nDefaultCluster\tbroker-a\n"
        found = json.loads(CliRunner().invoke(look, [*at, "--json"]).stdout)
        assert found["items"] == [{"cluster": "DefaultCluster", "brokers": ["broker-a"]}]
        in_part = CliRunner().invoke(look, [*at, "--verbose"])
        assert (in_part.exit_code, in_part.stderr) == (3, "sparrowmq: broker-z: away\n")


def test_what_loses_data_needs_yes_where_no_terminal_can_ask(tmp_path: Path) -> None:
    refused = CliRunner().invoke(drop, ["-n", "127.0.0.1:1"])
    assert refused.exit_code == 1
    assert "nothing was changed; --yes does it without asking" in refused.stderr
    done = CliRunner().invoke(drop, ["-n", "127.0.0.1:1", "--yes"])
    assert done.stderr == "deleted (name servers 127.0.0.1:1)\n"


def test_a_pipe_gets_the_data_and_people_the_facts_and_titles(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = table([("GROUP", "group")], [["billing"]], title="groups")
    report = Report([rows, rows], facts={"messages": 1291})
    Shell(name_servers="").show(report)
    printed, said = capsys.readouterr()
    assert printed == "GROUP\nbilling\n\nGROUP\nbilling\n"
    assert said == "messages: 1,291\ngroups\ngroups\n"
    Shell(name_servers="", is_quiet=True).show(report)
    assert capsys.readouterr() == (printed, "")
