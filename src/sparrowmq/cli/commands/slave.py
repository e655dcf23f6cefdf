"""`sparrowmq slave …`"""

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.slaves import SlaveInfo
from sparrowmq.cli.command_group import Group
from sparrowmq.cli.completion import complete_brokers
from sparrowmq.cli.option_types import Whole
from sparrowmq.cli.output import Kind, Report, Value, table
from sparrowmq.cli.shell import Shell, dry_run_option, shell_options, yes_option

_COLUMNS = (
    ("BROKER", "broker"),
    ("ID", "id"),
    ("ADDRESS", "address"),
    ("STATE", "state"),
    ("BEHIND", "behindBytes", Kind.NUMBER),
    ("HEARD", "heard", Kind.TIME),
)


@click.group(cls=Group)
def slave() -> None:
    """List slaves, and retire those that are gone for good."""


@slave.command("list")
@click.argument("brokers", nargs=-1, metavar="[BROKER]...", shell_complete=complete_brokers)
@shell_options(watch=True)
def list_slaves(brokers: tuple[str, ...], shell: Shell) -> None:
    """List the slaves that masters remember, also those that are away.

    \b
    Examples:
      sparrowmq slave list
      sparrowmq slave list broker-a
    """

    async def look(admin: Admin) -> Report:
        listed = await admin.slaves(brokers)
        rows = [_row(each) for each in listed]
        return Report([table(_COLUMNS, rows, empty="no master remembers a slave")], listed.errors)

    shell.report(look)


def _row(each: SlaveInfo) -> list[Value]:
    state = "follows" if each.follows else "away"
    return [each.broker, each.broker_id, each.address, state, each.behind_bytes, each.heard]


@slave.command()
@click.argument("broker", shell_complete=complete_brokers)
@click.argument("broker_id", metavar="ID", type=Whole(min=1))
@dry_run_option
@yes_option
@shell_options()
def retire(broker: str, broker_id: int, dry_run: bool, yes: bool, shell: Shell) -> None:
    """Make a master forget a slave that will not come back.

    The master deletes log files that it kept for the slave as they expire, and does not wait for
    the slave after a power cut. A slave that follows has to be stopped first. One that comes back
    is remembered again.

    \b
    Examples:
      sparrowmq slave retire broker-a 1 --dry-run
      sparrowmq slave retire broker-a 1 --yes
    """
    found = shell.ask(lambda admin: admin.retire_slave(broker, broker_id, dry_run=True))
    shell.show(Report([table(_COLUMNS, [_row(found)])]))
    if dry_run:
        shell.dry()
        return
    what = f"slave {broker_id} of {broker}"
    shell.confirm(f"{what} would be forgotten", f"{broker}/{broker_id}", yes=yes)
    shell.change(lambda admin: admin.retire_slave(broker, broker_id))
    shell.done(f"{what} is retired")


def commands() -> list[click.Command]:
    """For the program."""
    return [slave]
