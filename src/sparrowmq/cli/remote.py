"""Commands that talk to a cluster: the option that says where it is, and how failures are shown."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click
from click.core import ParameterSource

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.errors import AdminError, NameServerRefusal, NameServersAway
from sparrowmq.client.errors import ClientError, NameServerRefused, NoNameServer
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.codes import ResponseCode

T = TypeVar("T")

HELP = "host:port of the name servers, separated by commas."
DEFAULT = "127.0.0.1:9876"
VARIABLE = "SPARROWMQ_NAME_SERVERS"
NOT_A_NAME_SERVER = "is that a broker? --name-servers takes name servers, port 9876 by default"


def checked_addresses(ctx: click.Context, param: click.Parameter, text: str) -> str:
    """The text as it is. Raises BadParameter for anything but a list of host:port."""
    from sparrowmq.client.config import parse_name_servers
    from sparrowmq.net.peers import split_address

    source = ctx.get_parameter_source(param.name or "")
    where = f" (environment variable {VARIABLE})" if source is ParameterSource.ENVIRONMENT else ""
    allowed = f"such as {DEFAULT}; separate several with commas"
    addresses = parse_name_servers(text)
    if not addresses:
        raise click.BadParameter(f"{text!r}{where} has no address, {allowed}", ctx, param)
    for address in addresses:
        try:
            split_address(address)
        except ValueError as error:
            raise click.BadParameter(f"{error}{where}, {allowed}", ctx, param) from error
    return text


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
        click.echo(f"sparrowmq: {explained(error)}", err=True)
        sys.exit(1)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def no_name_server(addresses: str, failure: str) -> str:
    """No name server answers, and what to do about it at a terminal."""
    return (
        f"no name server answers ({addresses}): {failure}; is it running? start one with:"
        f" sparrowmq up, or say where it is with --name-servers or {VARIABLE}"
    )


def explained(error: AdminError | ClientError | NetError) -> str:
    """What failed. Errors of clients advise programs; people at a terminal have options."""
    if isinstance(error, NameServersAway | NoNameServer):
        return no_name_server(", ".join(error.addresses), error.failure)
    if isinstance(error, NameServerRefusal | NameServerRefused):
        is_unknown = error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        return f"{error}; {NOT_A_NAME_SERVER}" if is_unknown else str(error)
    return str(error)


def with_admin(name_servers: str, work: Callable[[Admin], Awaitable[T]]) -> T:
    """Run an operation."""

    async def run() -> T:
        async with Admin(name_servers) as admin:
            return await work(admin)

    return run_remote(run())
