"""Commands that talk to a cluster: where it is, how failures are shown.

--name-servers or --context ▶ SPARROWMQ_NAME_SERVERS ▶ SPARROWMQ_CONTEXT ▶ NAMESRV_ADDR
                            ▶ the context in use ▶ 127.0.0.1:9876
"""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any, TypeVar

import click

from sparrowmq.admin.errors import NameServerRefusal, NameServersAway
from sparrowmq.cli.completion import complete_contexts
from sparrowmq.cli.contexts import known_contexts
from sparrowmq.cli.logs import without_client_warnings
from sparrowmq.cli.output import one_line
from sparrowmq.client.errors import NoNameServer
from sparrowmq.cluster_address import (
    DEFAULT,
    DEFAULT_ORIGIN,
    NAME_SERVERS_VARIABLE,
    NameServerAddresses,
    find_name_servers,
)
from sparrowmq.errors import SparrowMQError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import ProtocolError

T = TypeVar("T")
ORIGIN = "sparrowmq.name_servers_origin"
"""The key in a command's context for the words that say where its addresses come from."""

_CONTEXT = "sparrowmq.context"
ADDRESSES = "HOST:PORT,…"
HELP = (
    "The name servers. Without it SPARROWMQ_NAME_SERVERS, SPARROWMQ_CONTEXT and NAMESRV_ADDR of the"
    " environment and the context in use count, in this order."
)
NOT_A_NAME_SERVER = "is that a broker? --name-servers takes name servers, port 9876 by default"


def found_addresses(ctx: click.Context, param: click.Parameter, text: str | None) -> str:
    """The addresses as one text. Raises UsageError for anything but a list of `host:port`."""
    from sparrowmq.net.peers import split_address

    context: str | None = ctx.meta.get(_CONTEXT)
    if text is not None and context is not None:
        raise click.UsageError("--name-servers and --context cannot be combined", ctx)
    try:
        addresses, origin = _of_command(text, context)
    except ValueError as error:
        if text is None:  # the environment or a context is wrong, not the option
            raise click.UsageError(str(error), ctx) from error
        wrong = f"{text!r} has no address, such as {DEFAULT}"
        raise click.BadParameter(wrong, ctx, param) from error
    where = f" (from {origin})" if text is None else ""
    for address in addresses:
        try:
            split_address(address)
        except ValueError as error:
            allowed = f"such as {DEFAULT}; separate several with commas"
            raise click.BadParameter(f"{error}{where}, {allowed}", ctx, param) from error
    ctx.meta[ORIGIN] = where
    return ";".join(addresses)


def _of_command(text: str | None, context: str | None) -> NameServerAddresses:
    """Find the name servers: programs obey arguments and variables; commands also obey the context
    in use. Raises ValueError."""
    if context is not None:
        return known_contexts().find(context, "--context")
    # Commands report all unknown variables at their start
    found = find_name_servers(text, log=None)
    if found.origin != DEFAULT_ORIGIN:
        return found
    return known_contexts().find_used() or found


def _keep_context(ctx: click.Context, _: click.Parameter, name: str | None) -> None:
    ctx.meta[_CONTEXT] = name


context_option = click.option(
    "--context",
    metavar="NAME",
    default=None,
    shell_complete=complete_contexts,
    is_eager=True,  # the name servers depend on it
    expose_value=False,
    callback=_keep_context,
    help="A named cluster instead of --name-servers; see: sparrowmq context list.",
)
_addresses_option = click.option(
    "--name-servers",
    "-n",
    metavar=ADDRESSES,
    default=None,
    show_default=DEFAULT,
    callback=found_addresses,
    help=HELP,
)


def name_servers_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--name-servers` and `--context`; the command gets the addresses as `name_servers`."""
    return _addresses_option(context_option(command))


def run_remote(work: Awaitable[T], *, is_long: bool = False) -> T:
    """Run a command's work; an expected failure is one line on standard error and exit code 1.

    In long-running work (`is_long`) the client logs its warnings.
    """

    async def run() -> T:
        return await work

    # The line below says what failed; without a handler Python would print the warnings itself.
    logging.getLogger("sparrowmq").addHandler(logging.NullHandler())
    try:
        with nullcontext() if is_long else without_client_warnings():
            return asyncio.run(run())
    except SparrowMQError as error:
        click.echo(f"sparrowmq: {one_line(explained(error))}", err=True)
        sys.exit(1)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def no_name_server(addresses: str, failure: str) -> str:
    """The text for unreachable name servers, and what to do about it at a terminal."""
    return (
        f"no name server answers ({addresses}{_origin()}): {failure}; is it running? start one"
        f" with: sparrowmq up, or say where it is with --name-servers or {NAME_SERVERS_VARIABLE}"
    )


def _origin() -> str:
    """Where the command's addresses come from, as `, from …`."""
    context = click.get_current_context(silent=True)
    where = context.meta.get(ORIGIN, "") if context is not None else ""
    return where.replace(" (from ", ", from ").removesuffix(")") or ", from --name-servers"


def explained(error: SparrowMQError) -> str:
    """What failed. Client errors give advice for programs; people at a terminal have options."""
    if isinstance(error, NameServersAway | NoNameServer):
        return no_name_server(", ".join(error.addresses), error.failure)
    if isinstance(error, NameServerRefusal):
        is_unknown = error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        text = f"the name server ({', '.join(error.addresses)}{_origin()}) answered {error.code}"
        return f"{text}: {error.remark}" + (f"; {NOT_A_NAME_SERVER}" if is_unknown else "")
    if isinstance(error, ProtocolError):
        return f"an answer cannot be read: {error}; is everything there RocketMQ or SparrowMQ?"
    return str(error)
