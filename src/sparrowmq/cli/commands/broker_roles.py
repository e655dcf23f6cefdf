"""`sparrowmq broker promote` and `sparrowmq broker demote`: another broker of the same name becomes
the master."""

from collections.abc import Awaitable, Callable

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.roles import RoleChange
from sparrowmq.cli.completion import complete_brokers
from sparrowmq.cli.option_types import Whole
from sparrowmq.cli.output import Kind, Report, Value, table
from sparrowmq.cli.shell import Shell, dry_run_option, shell_options, yes_option

_Change = Callable[[Admin, bool], Awaitable[RoleChange]]
"""Changes the roles, or only looks in a dry run."""

_id_option = click.option(
    "--id",
    "slave_id",
    type=Whole(min=1),
    metavar="ID",
    help="The slave that becomes the master; without it the one that has most.",
)


@click.command()
@click.argument("name", shell_complete=complete_brokers)
@_id_option
@click.option(
    "--accept-loss",
    metavar="NAME",
    help="The broker's name again: its master is gone, and what only that one had is lost.",
)
@click.option(
    "--address",
    metavar="HOST:PORT",
    help="The slave, if it is not registered because it was started without a master.",
)
@dry_run_option
@yes_option
@shell_options()
def promote(
    name: str,
    slave_id: int | None,
    accept_loss: str | None,
    address: str | None,
    dry_run: bool,
    yes: bool,
    shell: Shell,
) -> None:
    """Make a slave the master of its name.

    The current master hands over: it takes no more messages, waits until the slave has everything,
    and becomes a slave. Nothing is lost, and producers of SparrowMQ wait for less than a second.
    It refuses if the slave does not follow, or cannot catch up in a second.

    A slave whose master is gone becomes the master if you accept the loss by naming the broker.
    While the master answers it hands over all the same, and nothing is lost.

    \b
    Examples:
      sparrowmq broker promote broker-a --dry-run
      sparrowmq broker promote broker-a --id 1 --yes
      sparrowmq broker promote broker-a --accept-loss broker-a
    """
    if address is not None and slave_id is not None:
        raise click.UsageError("--id and --address cannot be combined")

    async def change(admin: Admin, is_dry: bool) -> RoleChange:
        return await admin.promote(
            name, slave_id, accept_loss=accept_loss, address=address, dry_run=is_dry
        )

    _run(change, dry_run=dry_run, yes=yes, shell=shell)


@click.command()
@click.argument("name", shell_complete=complete_brokers)
@_id_option
@dry_run_option
@yes_option
@shell_options()
def demote(name: str, slave_id: int | None, dry_run: bool, yes: bool, shell: Shell) -> None:
    """Make the master of a name a slave, to maintain its machine for instance.

    One of its slaves becomes the master, as with `sparrowmq broker promote`. It refuses if no slave
    can take over without a loss.

    \b
    Examples:
      sparrowmq broker demote broker-a --dry-run
      sparrowmq broker demote broker-a --yes
    """

    async def change(admin: Admin, is_dry: bool) -> RoleChange:
        return await admin.hand_over(name, slave_id, dry_run=is_dry)

    _run(change, dry_run=dry_run, yes=yes, shell=shell)


def _run(change: _Change, *, dry_run: bool, yes: bool, shell: Shell) -> None:
    found = shell.ask(lambda admin: change(admin, True))
    shell.say(_outlook(found))
    if dry_run:
        _show(shell, found, is_done=False)
        shell.dry()
        return
    shell.confirm(f"{found.broker} would get another master", found.broker, yes=yes)
    done = shell.change(
        lambda admin: change(admin, False),
        next_step=lambda: (
            f"{found.new_master} may be the master of {found.broker} by now, or soon. See which one"
            f" is: sparrowmq broker list; if it is not, run it again"
        ),
    )
    _show(shell, done, is_done=True)
    shell.done(f"{done.new_master} is the master of {done.broker}")


_COLUMNS = (
    ("BROKER", "broker"),
    ("SLAVE", "slaveId"),
    ("MASTER", "newMaster"),
    ("WAS", "oldMaster"),
    ("BEHIND", "behindBytes", Kind.NUMBER),
    ("LOG-END", "logEnd", Kind.NUMBER),
    ("DONE", "isDone"),
)


def _show(shell: Shell, found: RoleChange, *, is_done: bool) -> None:
    row: list[Value] = [
        *(found.broker, found.slave_id, found.new_master, found.old_master),
        "" if found.behind_bytes is None else found.behind_bytes,
        "" if found.log_end is None else found.log_end,
        is_done,
    ]
    shell.show(Report([table(_COLUMNS, [row])]))


def _outlook(found: RoleChange) -> str:
    slave = f"slave {found.slave_id} at {found.new_master}"
    if found.old_master is None:
        return (
            f"{found.broker} has no master: {slave} becomes it. Its log ends at {found.log_end:,};"
            " what the last master stored after that is lost"
        )
    return (
        f"{found.broker}: {slave}, {found.behind_bytes:,} bytes behind, becomes the master, and"
        f" {found.old_master} becomes slave {found.slave_id}"
    )


def commands() -> list[click.Command]:
    """For `sparrowmq broker`."""
    return [promote, demote]
