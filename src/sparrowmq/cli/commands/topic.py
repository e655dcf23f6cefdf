"""`sparrowmq topic …`"""

import sys

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.brokers import BrokerInfo
from sparrowmq.admin.errors import AdminError, NotFound
from sparrowmq.cli.command_group import Group
from sparrowmq.cli.option_types import Permission
from sparrowmq.cli.remote import is_confirmed, name_servers_option, with_admin
from sparrowmq.protocol.names import is_dlq_topic, is_retry_topic, is_system_topic
from sparrowmq.protocol.perm import perm_text
from sparrowmq.protocol.route import TopicRoute


@click.group(cls=Group)
def topic() -> None:
    """Create, list, inspect and delete topics."""


@topic.command()
@click.argument("name")
@click.option(
    "--queues",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="Queues on each broker.",
)
@click.option("--broker", "brokers", multiple=True, help="Only on this broker; may be repeated.")
@click.option("--cluster", help="On all brokers of this cluster.")
@click.option(
    "--perm",
    type=Permission(),
    metavar="PERM",
    default="6",
    show_default=True,
    help="2 or w: write, 4 or r: read, 6 or rw: both.",
)
@click.option(
    "--order", is_flag=True, help="Mark the topic as one whose queues are consumed in order."
)
@name_servers_option
def create(
    name: str,
    queues: int,
    brokers: tuple[str, ...],
    cluster: str | None,
    perm: int,
    order: bool,
    name_servers: str,
) -> None:
    """Create a topic, or change an existing one.

    \b
    Examples:
      sparrowmq topic create orders
      sparrowmq topic create orders --queues 16
      sparrowmq topic create orders --broker broker-a --broker broker-b
    """
    if brokers and cluster:
        raise click.UsageError("--broker and --cluster exclude each other")

    async def work(admin: Admin) -> list[str]:
        return await admin.create_topic(
            name, queues=queues, brokers=brokers, cluster=cluster, perm=perm, order=order
        )

    done = with_admin(name_servers, work)
    shown = f"{queues} queue{'s' if queues > 1 else ''}"
    click.echo(f"topic {name}: {shown} on each of {', '.join(done)}")


@topic.command("list")
@click.option(
    "--all", "show_all", is_flag=True, help="Include system, retry and dead-letter topics."
)
@name_servers_option
def list_topics(show_all: bool, name_servers: str) -> None:
    """List the names of all topics.

    \b
    Examples:
      sparrowmq topic list
      sparrowmq topic list --all -n 10.0.0.1:9876,10.0.0.2:9876
    """

    async def work(admin: Admin) -> tuple[list[str], set[str]]:
        info = await admin.cluster_info()
        return await admin.topics(), {*info.cluster_addr_table, *info.broker_addr_table}

    names, own = with_admin(name_servers, work)
    for name in names:
        is_own = name in own or is_system_topic(name) or name.endswith("_REPLY_TOPIC")
        if show_all or not (is_own or is_retry_topic(name) or is_dlq_topic(name)):
            click.echo(name)


@topic.command()
@click.argument("name")
@name_servers_option
def route(name: str, name_servers: str) -> None:
    """Show which brokers serve a topic, and with how many queues.

    \b
    Example:
      sparrowmq topic route orders
    """

    async def work(admin: Admin) -> tuple[TopicRoute, dict[str, list[BrokerInfo]]]:
        found = await admin.route(name)
        replicated = {each.broker_name for each in found.broker_datas if len(each.broker_addrs) > 1}
        listed = await admin.brokers() if replicated else ()
        return found, {
            name: [broker for broker in listed if broker.name == name] for name in replicated
        }

    found, replicas = with_admin(name_servers, work)
    brokers = {data.broker_name: data for data in found.broker_datas}
    click.echo(f"{'BROKER':<20} {'READ':>5} {'WRITE':>5}  PERM  ADDRESSES")
    for data in sorted(found.queue_datas, key=lambda each: each.broker_name):
        addresses = brokers[data.broker_name].broker_addrs if data.broker_name in brokers else {}
        shown = ", ".join(f"{number}:{address}" for number, address in sorted(addresses.items()))
        click.echo(
            f"{data.broker_name:<20} {data.read_queue_nums:>5} {data.write_queue_nums:>5}"
            f"  {perm_text(data.perm)}   {shown}"
        )
        for broker in replicas.get(data.broker_name, ()):
            click.echo(f"  {_replica_text(broker)}")


def _replica_text(broker: BrokerInfo) -> str:
    """How a master's copies are doing, or how far a slave is. Apache's brokers report neither."""
    role = broker.role if broker.is_master else f"slave {broker.broker_id}"
    runtime = broker.runtime
    if runtime is None:
        return f"{role}: does not answer"
    if broker.is_master:
        return f"{role}: {_figure(runtime.copies_in_sync)} copies in sync"
    return f"{role}: {_figure(runtime.behind_bytes)} bytes, {_figure(runtime.behind_s)} s behind"


def _figure(value: float | None) -> str:
    return "?" if value is None else f"{value:,.15g}"


@topic.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@name_servers_option
def delete(name: str, yes: bool, name_servers: str) -> None:
    """Delete a topic with its messages and every group's progress in it.

    \b
    Example:
      sparrowmq topic delete orders --yes
    """

    async def look(admin: Admin) -> None:
        try:
            await admin.route(name)
        except NotFound as error:
            if error.is_lost:
                raise
            raise AdminError(
                f"topic {name} does not exist; those that do: sparrowmq topic list"
            ) from error

    with_admin(name_servers, look)
    if not yes and not is_confirmed(f"Delete topic {name} and everything in it?"):
        click.echo("sparrowmq: nothing was deleted; --yes deletes without asking", err=True)
        sys.exit(1)

    async def work(admin: Admin) -> list[str]:
        return await admin.delete_topic(name)

    done = with_admin(name_servers, work)
    click.echo(f"topic {name} deleted on {', '.join(done)}")


def commands() -> list[click.Command]:
    """For the program."""
    return [topic]
