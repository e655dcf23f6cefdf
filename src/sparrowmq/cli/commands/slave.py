"""`sparrowmq slave …`"""

import sys
from datetime import datetime

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.slaves import SlaveInfo
from sparrowmq.admin.values import Listing
from sparrowmq.cli.command_group import Group
from sparrowmq.cli.remote import is_confirmed, name_servers_option, with_admin


@click.group(cls=Group)
def slave() -> None:
    """List the slaves of masters, and retire those that are gone for good."""


@slave.command("list")
@click.argument("brokers", nargs=-1, metavar="[BROKER]...")
@name_servers_option
def list_slaves(brokers: tuple[str, ...], name_servers: str) -> None:
    """List the slaves that masters remember, also those that are away.

    \b
    Examples:
      sparrowmq slave list
      sparrowmq slave list broker-a
    """

    async def work(admin: Admin) -> Listing[SlaveInfo]:
        return await admin.slaves(brokers)

    listed = with_admin(name_servers, work)
    click.echo(f"{'BROKER':<20} {'ID':>3}  {'ADDRESS':<21}  {'STATE':<7} {'BEHIND':>15}  HEARD")
    for each in listed:
        state = "follows" if each.follows else "away"
        click.echo(
            f"{each.broker:<20} {each.broker_id:>3}  {each.address:<21}  {state:<7}"
            f" {each.behind_bytes:>15,}  {_time(each.heard)}"
        )
    for failure in listed.errors:
        click.echo(f"sparrowmq: {failure}", err=True)
    if listed.errors:
        sys.exit(3)


@slave.command()
@click.argument("broker")
@click.argument("broker_id", metavar="ID", type=click.IntRange(min=1))
@click.option("--dry-run", is_flag=True, help="Only show what would be forgotten.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@name_servers_option
def retire(broker: str, broker_id: int, dry_run: bool, yes: bool, name_servers: str) -> None:
    """Let a master forget a slave that will not come back.

    The master deletes log files that it kept for the slave as they expire, and does not wait for
    the slave after a power cut. A slave that follows has to be stopped first. One that comes back
    is remembered again.

    \b
    Examples:
      sparrowmq slave retire broker-a 1 --dry-run
      sparrowmq slave retire broker-a 1 --yes
    """

    async def look(admin: Admin) -> SlaveInfo:
        return await admin.retire_slave(broker, broker_id, dry_run=True)

    async def work(admin: Admin) -> SlaveInfo:
        return await admin.retire_slave(broker, broker_id)

    found = with_admin(name_servers, look)
    what = f"slave {broker_id} of {broker}"
    click.echo(
        f"{what}: last at {found.address}, heard of {_time(found.heard)},"
        f" {found.behind_bytes:,} bytes behind"
    )
    if dry_run:
        return
    if not yes and not is_confirmed(f"Retire {what}?"):
        click.echo("sparrowmq: nothing was changed; --yes retires without asking", err=True)
        sys.exit(1)
    with_admin(name_servers, work)
    click.echo(f"{what} is retired")


def _time(when: datetime | None) -> str:
    return "?" if when is None else f"{when:%Y-%m-%dT%H:%M:%SZ}"


def commands() -> list[click.Command]:
    """For the program."""
    return [slave]
