"""`sparrowmq store follow DIR`: the store of a slave that has diverged from its master.

Exit codes: 0 fine, 2 the store cannot be read, is in use, or is not one of the master's slaves.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparrowmq.cli.output import Kind, Report, Value, table
from sparrowmq.cli.remote import name_servers_option
from sparrowmq.cli.shell import Shell, json_option
from sparrowmq.cli.store_directory import (
    directory_argument,
    disk_of,
    entries_option,
    progress,
    refusals,
    slots_option,
)
from sparrowmq.client.errors import counted
from sparrowmq.clock import date_of, system_clock
from sparrowmq.store.index.entries import IndexLayout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrowmq.broker.replication.claims import LogClaim
    from sparrowmq.broker.replication.log_description import LogOwner
    from sparrowmq.store.recovery.cut_tail import LogExtent, Tail


@click.command("follow")
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
@json_option
@click.option("--yes", is_flag=True, help="Do it; without it nothing is changed.")
def follow_master(
    directory: Path,
    master: str | None,
    name_servers: str,
    broker_name: str,
    index_slots: int,
    index_entries: int,
    as_json: bool,
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
    with refusals(), progress(quiet=False, findings=not as_json) as show:
        try:
            source = log_of_master(master, name_servers.split(";"), broker_name).claim
        except NoMaster as error:
            raise ValueError(str(error)) from error
        found = _Following(directory, source.address, as_json=as_json)
        own = extent_of(disk)
        cut_at = _parting(directory, own, owner_of(disk), source)
        if cut_at is None:
            found.tell_same(own.end - source.end)
            return
        tail = tail_from(disk, cut_at)
        found.tell_parted(cut_at, tail)
        if not yes:
            found.show("differs", cut_at, tail, says="nothing was changed; --yes moves them away")
            return
        config = config_of(disk, IndexLayout(index_slots, index_entries))
        kept = cut_tail(disk, config, cut_at, system_clock(), show)
    found.show(
        "cut",
        cut_at,
        tail,
        kept,
        says=f"the log ends at {cut_at} now; start the slave, and it follows {source.address}",
    )


@dataclass(frozen=True, slots=True)
class _Following:
    """Prints what was found and done: sentences, or one document."""

    directory: Path
    master: str
    as_json: bool = field(kw_only=True)

    def tell_same(self, longer: int) -> None:
        """The two logs have the same history; the slave's is longer by so many bytes."""
        more = (
            f", but is longer by {longer} bytes, which {self.master} gets back when it is restarted"
            if longer > 0
            else ""
        )
        text = f"{self.directory} has the same history as {self.master}{more}: nothing to cut"
        self.show("same history", None, None, says=text)

    def tell_parted(self, cut_at: int, tail: "Tail") -> None:
        """Where they part, before anything is cut."""
        if not self.as_json:
            click.echo(
                f"{self.directory} and {self.master} differ from log offset {cut_at} on:"
                f" {counted(tail.records, 'message')} ({tail.size:,} bytes) only in"
                f" {self.directory}, stored {_utc(tail.first_ms)} to {_utc(tail.last_ms)}"
            )

    def show(
        self,
        state: str,
        cut_at: int | None,
        tail: "Tail | None",
        kept: "Sequence[str]" = (),
        *,
        says: str,
    ) -> None:
        """Print the result."""
        paths = [str(self.directory / path) for path in kept]
        if not self.as_json:
            for path in paths:
                click.echo(f"kept: {path}")
            click.echo(says)
            return
        facts: dict[str, Value] = {
            "master": self.master,
            "state": state,
            "cutAt": cut_at,
            "messages": tail.records if tail else 0,
            "bytes": tail.size if tail else 0,
            "first": date_of(tail.first_ms) if tail else "",
            "last": date_of(tail.last_ms) if tail else "",
        }
        kinds = {"first": Kind.TIME, "last": Kind.TIME}
        files = table([("KEPT", "path")], [[path] for path in paths], key="kept")
        Shell(name_servers="", as_json=True).show(Report([files], facts=facts, kinds=kinds))


def _parting(
    directory: Path, own: "LogExtent", owner: "LogOwner | None", source: "LogClaim"
) -> int | None:
    """Where a store parts from its master's log; None if it does not.

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
    if cut_at is not None and cut_at <= own.begin:
        raise ValueError(
            f"{directory} and {source.address} have nothing in common: {directory} begins at"
            f" {own.begin}, and they differ from {cut_at} on; start the slave with an empty"
            " directory"
        )
    return cut_at


def _utc(time_ms: int) -> str:
    return f"{date_of(time_ms):%Y-%m-%dT%H:%M:%SZ}"
