"""`sparrowmq store verify | repair | rebuild | dump | follow DIR`: a store without a broker.

Exit codes: 0 fine, 1 damage was found, 2 the store cannot be read or is in use.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparrowmq.cli.command_group import Group
from sparrowmq.cli.commands.store_follow import follow_master
from sparrowmq.cli.commands.store_repair import repair_store
from sparrowmq.cli.option_types import Whole
from sparrowmq.cli.output import Report, Value, table
from sparrowmq.cli.shell import Shell, json_option
from sparrowmq.cli.stop_signal import changing
from sparrowmq.cli.store_directory import (
    DAMAGED,
    FINE,
    directory_argument,
    disk_of,
    entries_option,
    progress,
    refusals,
    slots_option,
)
from sparrowmq.client.errors import counted
from sparrowmq.clock import local_zone, system_clock
from sparrowmq.store.index.entries import IndexLayout
from sparrowmq.store.messages import Damage, StartProgress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrowmq.disk.disk import Disk
    from sparrowmq.protocol.record import Record
    from sparrowmq.store.inspect.dump import DumpedHole
    from sparrowmq.store.inspect.verify import StoreFinding, Verified

_FROM_0 = Whole(min=0)


@click.group("store", cls=Group)
def app() -> None:
    """Verify, repair, rebuild or dump a store without its broker."""


def commands() -> list[click.Command]:
    """For the program."""
    return [app]


app.add_command(repair_store)
app.add_command(follow_master)


@app.command("verify")
@directory_argument
@slots_option
@entries_option
@click.option(
    "--show", type=_FROM_0, default=100, show_default=True, help="Most findings to print."
)
@json_option
@click.option("--quiet", is_flag=True, help="Print the result only.")
def verify_store(
    directory: Path, index_slots: int, index_entries: int, show: int, as_json: bool, quiet: bool
) -> None:
    """Check every record, queue unit, index entry and table of a store. Changes nothing.

    Exits with 0 if all is fine, 1 if something is damaged, 2 if the store cannot be read.

    \b
    Example:
      sparrowmq store verify sparrowmq-data
    """
    from sparrowmq.store.inspect.verify import verify

    findings: list[StoreFinding] = []  # as many as are shown
    count = 0
    with refusals(), progress(quiet=quiet, findings=not as_json) as show_event:

        def report(event: "StoreFinding | StartProgress") -> None:
            nonlocal count
            if isinstance(event, StartProgress):
                show_event(event)
                return
            count += 1
            if count <= show:
                findings.append(event)
                show_event(event)

        found = verify(disk_of(directory), report, IndexLayout(index_slots, index_entries))
    if as_json:
        Shell(name_servers="", as_json=True).show(_verified(found, findings, count))
    else:
        _tell_verified(found, count - show if not quiet else 0)
    sys.exit(DAMAGED if found.damage or found.skipped else FINE)


def _tell_verified(found: "Verified", more: int) -> None:
    """Print the result; `more` findings were not printed."""
    if more > 0:
        click.echo(f"and {more} more")
    for text in found.skipped:
        click.echo(f"not checked: {text}", err=True)
    click.echo(
        f"{counted(found.records, 'message')} in {counted(found.log_files, 'log file')}"
        f" ({counted(found.log_bytes, 'byte')}),"
        f" {counted(found.units, 'unit')} in {counted(found.queues, 'queue')},"
        f" {found.index_entries} index entries in {found.index_files} files,"
        f" {found.tables} tables"
    )
    if found.left_to_start:
        click.echo(f"{found.left_to_start} places that the next start of the broker will complete")
    click.echo(f"{found.damage} damaged places" if found.damage else "no damage")


def _verified(found: "Verified", findings: "Sequence[StoreFinding]", count: int) -> Report:
    rows = [(each.path, each.position, each.reason, each.is_damage) for each in findings]
    columns = (("PLACE", "path"), ("BYTE", "position"), ("WRONG", "reason"), ("DAMAGE", "isDamage"))
    skipped = [[text] for text in found.skipped]
    facts: dict[str, Value] = {
        "messages": found.records,
        "logFiles": found.log_files,
        "logBytes": found.log_bytes,
        "queues": found.queues,
        "units": found.units,
        "indexFiles": found.index_files,
        "indexEntries": found.index_entries,
        "tables": found.tables,
        "leftToStart": found.left_to_start,
        "damage": found.damage,
    }
    tables = [
        table(columns, rows, total=count),
        table([("REASON", "reason")], skipped, key="notChecked"),
    ]
    return Report(tables, facts=facts)


@app.command("rebuild")
@directory_argument
@slots_option
@entries_option
@click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="NAME",
    help="Make only this table of config/ again, as far as log and journal know it: what only"
    " the table knew is lost.",
)
@json_option
@click.option("--quiet", is_flag=True, help="Print the result only.")
def rebuild_store(
    directory: Path,
    index_slots: int,
    index_entries: int,
    tables: tuple[str, ...],
    as_json: bool,
    quiet: bool,
) -> None:
    """Build consume queues and index from the log. The broker must be stopped.

    The old files stay in place until the new ones are whole.

    \b
    Examples:
      sparrowmq store rebuild sparrowmq-data
      sparrowmq store rebuild sparrowmq-data --table topics.json
    """
    disk = disk_of(directory)
    if tables:
        _rebuild_tables(disk, tables, as_json=as_json)
        return
    from sparrowmq.store.recovery.rebuild import config_of, rebuild

    damage: list[Damage] = []
    with refusals(), progress(quiet=quiet, findings=not as_json) as show:

        def report(event: Damage | StartProgress) -> None:
            if isinstance(event, Damage):
                damage.append(event)
            show(event)

        config = config_of(disk, IndexLayout(index_slots, index_entries))
        with changing():
            rebuilt = rebuild(disk, config, system_clock(), report, zone=local_zone)
    if as_json:
        rows = [
            (each.path, each.position, each.length, each.reason, each.action) for each in damage
        ]
        facts: dict[str, Value] = {"queues": rebuilt.queues, "logEnd": rebuilt.log_end}
        Shell(name_servers="", as_json=True).show(Report([table(_DAMAGE, rows)], facts=facts))
    else:
        click.echo(
            f"{counted(rebuilt.queues, 'queue')} and the index rebuilt, log end {rebuilt.log_end}"
        )
    sys.exit(DAMAGED if damage else FINE)


_DAMAGE = (
    ("PLACE", "path"),
    ("BYTE", "position"),
    ("BYTES", "bytes"),
    ("WRONG", "reason"),
    ("DONE", "action"),
)


def _rebuild_tables(disk: "Disk", names: "Sequence[str]", *, as_json: bool) -> None:
    from sparrowmq.cli.store_tables import rebuild_table

    done: list[tuple[str, str]] = []
    with refusals():
        for name in names:
            done.append((name, rebuild_table(disk, name)))
            if not as_json:
                click.echo(done[-1][1])
    if as_json:
        columns = (("TABLE", "table"), ("RESULT", "result"))
        Shell(name_servers="", as_json=True).show(Report([table(columns, done)]))


@app.command("dump")
@directory_argument
@click.option("--from", "start", type=_FROM_0, help="First log offset; a message must start there.")
@click.option("--to", "stop", type=_FROM_0, help="Log offset just past the last message.")
@click.option("--file", "file", help="Only this log file, such as 00000000000000000000.")
@click.option("--topic", help="Only messages of this topic.")
@click.option("--queue", "queue_id", type=_FROM_0, help="Only messages of this queue.")
@click.option("--key", help="Only messages with this key or unique id.")
@click.option("--limit", type=Whole(min=1), help="Most messages to print.")
@click.option(
    "--table", "as_table", is_flag=True, help="Print a table for people instead of JSON lines."
)
def dump_store(
    directory: Path,
    start: int | None,
    stop: int | None,
    file: str | None,
    topic: str | None,
    queue_id: int | None,
    key: str | None,
    limit: int | None,
    as_table: bool,
) -> None:
    """Print messages in log order, as JSON lines or as a table.

    \b
    Examples:
      sparrowmq store dump sparrowmq-data --topic orders --limit 10
      sparrowmq store dump sparrowmq-data --key o-1 --table
    """
    from sparrowmq.store.files import StoreFiles
    from sparrowmq.store.inspect.dump import Choice, DumpedHole, dump

    disk = disk_of(directory)
    is_damaged, count = False, 0
    with refusals():
        if file is not None:
            start = _log_file(directory, file)
            stop = start + StoreFiles(disk).log_file_size()
        choice = Choice(
            start=start, stop=stop, topic=topic, queue_id=queue_id, key=key, limit=limit
        )
        show = _table_printer() if as_table else _print_json
        for found in dump(disk, choice):
            show(found)
            count += 1
            is_damaged |= isinstance(found, DumpedHole)
    if not count:
        click.echo(f"no message in {directory} fits", err=True)
    sys.exit(DAMAGED if is_damaged else FINE)


def _print_json(found: "Record | DumpedHole") -> None:
    import msgspec

    from sparrowmq.store.inspect.dump import as_json

    click.echo(msgspec.json.encode(as_json(found)))


def _table_printer() -> "Callable[[Record | DumpedHole], None]":
    from sparrowmq.store.inspect.dump import DumpedHole, as_json

    click.echo(f"{'log offset':>12} {'topic':<24} {'queue':>5} {'offset':>9}  message id / body")

    def show(found: "Record | DumpedHole") -> None:
        if isinstance(found, DumpedHole):
            click.echo(f"{found.path} at {found.position}: {found.length} bytes: {found.reason}")
            return
        line = as_json(found)
        body = line.get("body", "(binary)").replace("\n", " ")[:60]
        click.echo(
            f"{found.log_offset:>12} {found.topic:<24} {found.queue_id:>5}"
            f" {found.queue_offset:>9}  {line['msgId']} {body}"
        )

    return show


def _log_file(directory: Path, name: str) -> int:
    """The offset at which a log file begins."""
    names = sorted(path.name for path in (directory / "commitlog").iterdir())
    if name not in names:
        raise ValueError(f"there is no log file {name}; there are: {', '.join(names) or 'none'}")
    return int(name)
