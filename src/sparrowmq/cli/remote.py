"""What commands that talk to a cluster share: where it is, and how failures are told."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.errors import AdminError
from sparrowmq.client.errors import ClientError
from sparrowmq.net.errors import NetError

T = TypeVar("T")

name_servers_option = click.option(
    "--name-servers",
    "-n",
    envvar="SPARROWMQ_NAME_SERVERS",
    default="127.0.0.1:9876",
    show_default=True,
    help="host:port of the name servers, with commas between.",
)


def run_remote(work: Awaitable[T]) -> T:
    """Run a command's work; an ordinary failure is one line on standard error and exit code 1."""

    async def run() -> T:
        return await work

    try:
        return asyncio.run(run())
    except (AdminError, ClientError, NetError) as error:
        click.echo(f"sparrowmq: {error}", err=True)
        sys.exit(1)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def with_admin(name_servers: str, work: Callable[[Admin], Awaitable[T]]) -> T:
    """Run an operation."""

    async def run() -> T:
        async with Admin(name_servers) as admin:
            return await work(admin)

    return run_remote(run())
