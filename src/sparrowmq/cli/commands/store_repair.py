"""`sparrowmq store repair DIR`: set damaged data aside, and make the rest readable again.

Exit codes: 0 nothing to do, or all of it done; 1 damage was found and nothing was changed; 2 the
store cannot be repaired or is in use.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparrowmq.cli.output import Report, Value, table
from sparrowmq.cli.shell import Shell, dry_run_option, limit_option, yes_option
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
from sparrowmq.clock import local_zone, system_clock
from sparrowmq.store.index.entries import IndexLayout
from sparrowmq.store.layout import LOCK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrowmq.disk.disk import Disk
    from sparrowmq.store.recovery.repair import RepairPlan, RepairStep

_COLUMNS = [
    ("PLACE", "path"),
    ("BYTE", "position"),
    ("BYTES", "bytes"),
    ("WRONG", "reason"),
    ("DONE", "action"),
    ("KEPT IN", "kept"),
]


@click.command("repair")
@directory_argument
@slots_option
@entries_option
@dry_run_option
@yes_option
@limit_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--quiet", "-q", "is_quiet", is_flag=True, help="Print only data and errors.")
def repair_store(
    directory: Path,
    index_slots: int,
    index_entries: int,
    dry_run: bool,
    yes: bool,
    limit: int,
    as_json: bool,
    is_quiet: bool,
) -> None:
    """Repair a store. The broker must be stopped. Nothing is deleted.

    Every message that can be read is kept, at its offset. Damaged bytes of the log are copied to
    sparrowmq/quarantine in DIR and a filler of their size takes their place, so that Apache's
    broker reads past them as well; a torn tail is cut, queues and index are built again, tables
    that cannot be read are taken from their .bak. At a terminal it asks first.

    \b
    Examples:
      sparrowmq store repair sparrowmq-data --dry-run
      sparrowmq store repair sparrowmq-data --yes
    """
    shell = Shell(name_servers="", as_json=as_json, is_quiet=is_quiet)
    disk, layout = disk_of(directory), IndexLayout(index_slots, index_entries)
    with refusals():
        lock = disk.lock(LOCK)
        try:
            ask = _Ask(shell, directory, dry_run=dry_run, yes=yes, limit=limit)
            _repair(ask, disk, layout)
        finally:
            lock.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ask:
    """The options of the command."""

    shell: Shell = field(kw_only=False)
    directory: Path = field(kw_only=False)
    dry_run: bool
    yes: bool
    limit: int

    def show(self, plan: "RepairPlan", steps: "Sequence[RepairStep]", *notes: str) -> None:
        """Print what is wrong, and how it is repaired."""
        cut = sum(step.length for step in steps if step.kept)
        facts: dict[str, Value] = {"messagesKept": plan.records, "bytesQuarantined": cut}
        rows = [
            (each.path, each.position, each.length, each.reason, each.action, each.kept)
            for each in (steps[: self.limit] if self.limit else steps)
        ]
        found = table(_COLUMNS, rows, total=len(steps), empty="no damage")
        self.shell.show(Report([found], facts=facts, notes=notes))


def _repair(ask: _Ask, disk: "Disk", layout: IndexLayout) -> None:
    from sparrowmq.cli.store_tables import broken_tables, repair_tables
    from sparrowmq.store.recovery.repair import carry_out, plan_repair

    directory = ask.directory
    with progress(quiet=ask.shell.is_quiet, findings=False) as show:
        plan = plan_repair(disk, layout, show)
    broken = broken_tables(disk)
    steps = [*plan.steps, *(each.step() for each in broken)]
    if not steps:
        ask.show(plan, steps, f"{directory} needs no repair")
        sys.exit(FINE)
    if ask.dry_run:
        ask.show(plan, steps, "nothing was changed: a dry run")
        sys.exit(DAMAGED)
    if not ask.yes:
        if not ask.shell.as_json:
            ask.show(plan, steps)
        what = f"{len(steps)} places of {directory} would be repaired"
        ask.shell.confirm(what, directory.resolve().name, yes=False)
    with changing():
        with progress(quiet=ask.shell.is_quiet, findings=False) as show:
            done = carry_out(disk, plan, layout, system_clock(), show, zone=local_zone)
        done += repair_tables(disk, broken)
    ask.show(plan, done, f"{directory} is repaired; nothing was deleted")
    sys.exit(FINE)
