"""`sparrowmq store verify | repair | rebuild | dump | follow DIR`: a store without a broker.

Exit codes: 0 fine, 1 damage was found, 2 the store cannot be read or is in use.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparrowmq.cli.command_group import Group
from sparrowmq.cli.commands.store_repair import repair_store
from sparrowmq.cli.option_types import Whole
from sparrowmq.cli.remote import name_servers_option
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
    from sparrowmq.broker.replication.claims import LogClaim
    from sparrowmq.broker.replication.log_description import LogOwner
    from sparrowmq.protocol.record import Record
    from sparrowmq.store.inspect.dump import DumpedHole
    from sparrowmq.store.inspect.verify import StoreFinding
    from sparrowmq.store.recovery.cut_tail import LogExtent

_FROM_0 = Whole(min=0)


@click.group("store", cls=Group)
def app() -> None:
    """Verify, repair, rebuild or dump a store without its broker."""


def commands() -> list[click.Command]:
    """For the program."""
    return [app]


app.add_command(repair_store)


@app.command("verify")
@directory_argument
@slots_option
@entries_option
@click.option(
    "--show", type=_FROM_0, default=100, show_default=True, help="Most findings to print."
)
@click.option("--quiet", is_flag=True, help="Print the result only.")
def verify_store(
    directory: Path, index_slots: int, index_entries: int, show: int, quiet: bool
) -> None:
    """Check every record, queue unit, index entry and table of a store. Changes nothing.

    Exits with 0 if all is fine, 1 if something is damaged, 2 if the store cannot be read.

    \b
    Example:
      sparrowmq store verify sparrowmq-data
    """
    from sparrowmq.store.inspect.verify import verify

    findings = 0
    with refusals(), progress(quiet=quiet) as show_event:

        def report(event: "StoreFinding | StartProgress") -> None:
            nonlocal findings
            findings += not isinstance(event, StartProgress)
            if isinstance(event, StartProgress) or findings <= show:
                show_event(event)

        found = verify(disk_of(directory), report, IndexLayout(index_slots, index_entries))
    if findings > show and not quiet:
        click.echo(f"and {findings - show} more")
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
    sys.exit(DAMAGED if found.damage or found.skipped else FINE)


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
@click.option("--quiet", is_flag=True, help="Print the result only.")
def rebuild_store(
    directory: Path, index_slots: int, index_entries: int, tables: tuple[str, ...], quiet: bool
) -> None:
    """Build consume queues and index from the log. The broker must be stopped.

    The old files stay in place until the new ones are whole.

    \b
    Examples:
      sparrowmq store rebuild sparrowmq-data
      sparrowmq store rebuild sparrowmq-data --table topics.json
    """
    from sparrowmq.cli.store_tables import rebuild_table
    from sparrowmq.store.recovery.rebuild import config_of, rebuild

    disk = disk_of(directory)
    if tables:
        with refusals():
            for name in tables:
                click.echo(rebuild_table(disk, name))
        return
    damage: list[Damage] = []
    with refusals(), progress(quiet=quiet) as show:

        def report(event: Damage | StartProgress) -> None:
            if isinstance(event, Damage):
                damage.append(event)
            show(event)

        config = config_of(disk, IndexLayout(index_slots, index_entries))
        with changing():
            rebuilt = rebuild(disk, config, system_clock(), report, zone=local_zone)
    click.echo(
        f"{counted(rebuilt.queues, 'queue')} and the index rebuilt, log end {rebuilt.log_end}"
    )
    sys.exit(DAMAGED if damage else FINE)


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


@app.command("follow")
@directory_argument
@click.option("--master", metavar="HOST:PORT", help="The broker to follow.")
@name_servers_option
@click.option(
    "--broker-name",
    default="broker-a",
    show_default=True,
    help="Without --master: the master that name servers know by this name.",
)
@slots_option
@entries_option
@click.option("--yes", is_flag=True, help="Do it; without it nothing is changed.")
def follow_master(
    directory: Path,
    master: str | None,
    name_servers: str,
    broker_name: str,
    index_slots: int,
    index_entries: int,
    yes: bool,
) -> None:
    """Cut what only a slave has, so that it can follow its master.

    A master refuses a slave whose log differs from its own. This command says where the two logs
    part, and what it would move to sparrowmq/quarantine in DIR; with --yes it does so. Nothing is
    deleted. The slave must be stopped.

    \b
    Examples:
      sparrowmq store follow slave-data --master 10.0.0.1:10911
      sparrowmq store follow slave-data --name-servers 10.0.0.3:9876 --yes
    """
    from sparrowmq.broker.replication.log_description import owner_of
    from sparrowmq.cli.master_log import NoMaster, log_of_master
    from sparrowmq.store.recovery.cut_tail import cut_tail, extent_of, tail_from
    from sparrowmq.store.recovery.rebuild import config_of

    disk = disk_of(directory)
    with refusals(), progress(quiet=False) as show:
        try:
            source = log_of_master(master, name_servers.split(";"), broker_name).claim
        except NoMaster as error:
            raise ValueError(str(error)) from error
        cut_at = _parting(directory, extent_of(disk), owner_of(disk), source)
        if cut_at is None:
            return
        tail = tail_from(disk, cut_at)
        click.echo(
            f"{directory} and {source.address} differ from log offset {cut_at} on:"
            f" {counted(tail.records, 'message')} ({tail.size:,} bytes) only in {directory}, stored"
            f" {_utc(tail.first_ms)} to {_utc(tail.last_ms)}"
        )
        if not yes:
            click.echo("nothing was changed; --yes moves them away")
            return
        config = config_of(disk, IndexLayout(index_slots, index_entries))
        for path in cut_tail(disk, config, cut_at, system_clock(), show):
            click.echo(f"kept: {directory / path}")
    click.echo(f"the log ends at {cut_at} now; start the slave, and it follows {source.address}")


def _parting(
    directory: Path, own: "LogExtent", owner: "LogOwner | None", source: "LogClaim"
) -> int | None:
    """Where a store parts from its master's log; None, with the reason printed, if it does not.

    Raises ValueError for another broker's store, and if cutting would leave nothing.
    """
    from sparrowmq.broker.replication.claims import LogClaim, diverged_at, identity_fault

    claim = LogClaim(
        cluster=source.cluster if owner is None else owner.cluster,
        broker_name=source.broker_name if owner is None else owner.broker_name,
        broker_id=1,
        address=str(directory),
        file_size=own.file_size,
        begin=own.begin,
        end=own.end,
        lineage=own.lineage,
    )
    if (fault := identity_fault(source, claim)) is not None:
        raise ValueError(f"{directory} is not the store of a slave of {source.address}: {fault}")
    if source.is_empty and not claim.is_empty:
        raise ValueError(
            f"the log of {source.address} is empty, and {directory} has"
            f" {own.end - own.begin} bytes. If that master lost its disk, stop it and make this"
            f" slave the master: sparrowmq broker promote {source.broker_name} --accept-loss"
            f" {source.broker_name}"
        )
    cut_at = diverged_at(source, claim)
    if cut_at is None:
        more = (
            f", but is longer by {own.end - source.end} bytes, which {source.address} gets back"
            " when it is restarted"
            if own.end > source.end
            else ""
        )
        click.echo(f"{directory} has the same history as {source.address}{more}: nothing to cut")
    elif cut_at <= own.begin:
        raise ValueError(
            f"{directory} and {source.address} have nothing in common: {directory} begins at"
            f" {own.begin}, and they differ from {cut_at} on; start the slave with an empty"
            " directory"
        )
    return cut_at


def _utc(time_ms: int) -> str:
    from sparrowmq.clock import date_of

    return f"{date_of(time_ms):%Y-%m-%dT%H:%M:%SZ}"


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
