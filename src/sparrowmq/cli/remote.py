"""What commands that talk to a cluster share: where it is, and how failures are told."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click
from click.core import ParameterSource

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.errors import AdminError
from sparrowmq.client.errors import ClientError
from sparrowmq.net.errors import NetError

# The addresses of name servers, as commands take them.


HELP = "host:port of the name servers, with commas between."
DEFAULT = "127.0.0.1:9876"
VARIABLE = "SPARROWMQ_NAME_SERVERS"


def checked_addresses(ctx: click.Context, param: click.Parameter, text: str) -> str:
    """The text as it is. Raises BadParameter for what is no list of host:port."""
    from sparrowmq.client.config import parse_name_servers
    from sparrowmq.net.peers import split_address

    source = ctx.get_parameter_source(param.name or "")
    where = f" (environment variable {VARIABLE})" if source is ParameterSource.ENVIRONMENT else ""
    allowed = f"such as {DEFAULT}; several have commas between"
    addresses = parse_name_servers(text)
    if not addresses:
        raise click.BadParameter(f"{text!r}{where} has no address, {allowed}", ctx, param)
    for address in addresses:
        try:
            split_address(address)
        except ValueError as error:
            raise click.BadParameter(f"{error}{where}, {allowed}", ctx, param) from error
    return text


T = TypeVar("T")
_OF_NAME_SERVERS = ("GET_ROUTEINFO_BY_TOPIC", "GET_BROKER_CLUSTER_INFO")

name_servers_option = click.option(
    "--name-servers",
    "-n",
    envvar=VARIABLE,
    default=DEFAULT,
    show_default=True,
    callback=checked_addresses,
    help=HELP,
)


def run_remote(work: Awaitable[T]) -> T:
    """Run a command's work; an ordinary failure is one line on standard error and exit code 1."""

    async def run() -> T:
        return await work

    try:
        return asyncio.run(run())
    except (AdminError, ClientError, NetError) as error:
        click.echo(f"sparrowmq: {in_words_of_commands(str(error))}", err=True)
        sys.exit(1)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def in_words_of_commands(text: str) -> str:
    """Errors of clients name their arguments; people at a terminal gave options."""
    told = text.replace("name_servers", "--name-servers")
    if told.endswith("sparrowmq up") and "--name-servers" not in told:
        told += f", or say where it is with --name-servers or {VARIABLE}"
    if "is not supported here" in told and any(code in told for code in _OF_NAME_SERVERS):
        told += "; is that a broker? --name-servers takes name servers, port 9876 by default"
    return told


def with_admin(name_servers: str, work: Callable[[Admin], Awaitable[T]]) -> T:
    """Run an operation."""

    async def run() -> T:
        async with Admin(name_servers) as admin:
            return await work(admin)

    return run_remote(run())
