"""`sparrowmq cluster …`: all brokers at a glance, and whether they are healthy."""

import sys

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.health import MOST_DISK, Health, HealthCheck
from sparrowmq.cli.cluster_tables import broker_table
from sparrowmq.cli.command_group import Group
from sparrowmq.cli.option_types import Percentage, Whole
from sparrowmq.cli.output import Report, table
from sparrowmq.cli.shell import Shell, shell_options


@click.group(cls=Group)
def cluster() -> None:
    """Show the brokers of a cluster, and check its health."""


@cluster.command()
@shell_options(watch=True)
def show(shell: Shell) -> None:
    """Show every broker with its role, version, rates and disk.

    \b
    Examples:
      sparrowmq cluster show
      sparrowmq cluster show --watch 5s
    """

    async def look(admin: Admin) -> Report:
        listed = await admin.brokers()
        drained = await admin.drained_brokers()
        notes = [
            f"{name} at {address} is drained; resume it with: sparrowmq broker resume {name}"
            for name, address in sorted(drained.items())
        ]
        return Report([broker_table(listed)], errors=listed.errors, notes=notes)

    shell.report(look)


@cluster.command()
@click.option(
    "--max-lag",
    type=Whole(min=0),
    metavar="N",
    help="Also: no group has more messages waiting.",
)
@click.option(
    "--max-disk",
    type=Percentage(),
    metavar="PERCENT",
    default=MOST_DISK,
    show_default="85%",
    help="The largest part of a disk that may be used.",
)
@shell_options()
def health(max_lag: int | None, max_disk: float, shell: Shell) -> None:
    """Check whether the cluster needs attention; exit code 1 if so.

    \b
    Examples:
      sparrowmq cluster health
      sparrowmq cluster health --max-lag 10000 --max-disk 80%
    """

    async def look(admin: Admin) -> list[HealthCheck]:
        return await admin.health(max_lag=max_lag, max_disk=max_disk)

    checks = shell.ask(look)
    rows = [[each.check, each.state, each.text] for each in checks]
    columns = (("CHECK", "check"), ("STATE", "state"), ("TEXT", "text"))
    shell.show(Report([table(columns, rows)]))
    if any(each.state is not Health.GOOD for each in checks):
        sys.exit(1)


def commands() -> list[click.Command]:
    """For the program."""
    return [cluster]
