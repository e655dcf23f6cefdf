"""What commands that talk to a cluster share: where it is, and how failures are told."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.errors import AdminError
from sparrowmq.cli.addresses import DEFAULT, HELP, VARIABLE, checked_addresses
from sparrowmq.client.errors import ClientError
from sparrowmq.net.errors import NetError

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
