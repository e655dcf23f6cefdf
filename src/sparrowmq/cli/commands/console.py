"""`sparrowmq console`: the web console of a cluster."""

import logging
import os
import socket
import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from sparrowmq.cli.console_child import DEFAULT_PORT
from sparrowmq.cli.contexts import known_contexts
from sparrowmq.cli.logs import set_up_logs
from sparrowmq.cli.option_types import Whole
from sparrowmq.cli.remote import name_servers_option
from sparrowmq.cluster_address import split_addresses


@click.command()
@click.option("--listen", metavar="ADDRESS", default="127.0.0.1", show_default=True)
@click.option(
    "--port",
    type=Whole(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="0 takes a free one.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A further name that browsers may use for it, such as a proxy's; may be repeated.",
)
@click.option(
    "--users",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File with users; needed unless it listens on loopback.",
)
@click.option(
    "--add-user",
    metavar="NAME",
    help="Add a user to the file or change the password, and end.",
)
@click.option(
    "--role",
    type=click.Choice(["reader", "operator"]),
    default="reader",
    show_default=True,
    help="Of --add-user.",
)
@click.option("--tls-cert", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--read-only", is_flag=True, help="Offer no changes.")
@click.option("--insecure", is_flag=True, help="Allow listening beyond loopback without TLS.")
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    show_default="$XDG_STATE_HOME/sparrowmq/console",
    help="Directory of the audit log and the history.",
)
@click.option(
    "--also",
    multiple=True,
    metavar="NAME",
    help="A further cluster of `sparrowmq context list`, which a switch in the header leads to; may"
    " be repeated. Without it all of them on loopback, unless --name-servers is given.",
)
@click.option("--json", "as_json", is_flag=True, help="Log one JSON object per line.")
@click.option("--fd", type=int, hidden=True, help="A listening socket, handed over by `up`.")
@click.option("--with-parent", is_flag=True, hidden=True)
@name_servers_option
@click.pass_context
def console(ctx: click.Context, /, **given: Any) -> None:
    """Run the web console of a cluster.

    \b
    Examples:
      sparrowmq console
      sparrowmq console -n 10.0.0.1:9876 --read-only
      sparrowmq console --context staging --also production
      sparrowmq console --users users.txt --add-user ada --role operator
      sparrowmq console --listen 0.0.0.0 --users users.txt --tls-cert cert.pem --tls-key key.pem
    """
    from sparrowmq.console.config import ConsoleError

    try:
        if given["add_user"] is not None:
            _add_user(given["users"], given["add_user"], given["role"])
        else:
            sys.exit(serve_console(given, *_named(ctx, given)))
    except ConsoleError as error:
        raise click.UsageError(str(error), ctx) from error


def _add_user(path: Path | None, name: str, role: str) -> None:
    from sparrowmq.console.config import ConsoleError
    from sparrowmq.console.users import UserRole, check_name, write_user

    if path is None:
        raise ConsoleError("--add-user needs the file: give it with --users FILE")
    try:
        check_name(name)
        if sys.stdin.isatty():
            password = click.prompt("Password", hide_input=True, confirmation_prompt=True)
        else:
            password = sys.stdin.readline().rstrip("\r\n")
        write_user(path, name, UserRole(role), password)
    except ValueError as error:
        raise ConsoleError(str(error)) from error
    except OSError as error:
        raise ConsoleError(f"users file {path} cannot be written: {error}") from error
    click.echo(f"{path}: {name} is {'an' if role[0] in 'aeiou' else 'a'} {role}")


def _named(ctx: click.Context, given: dict[str, Any]) -> tuple[str, dict[str, tuple[str, ...]]]:
    """The cluster's name, and the other clusters to show. Raises ConsoleError."""
    from sparrowmq.console.config import ConsoleError, is_loopback

    try:
        contexts = known_contexts()
        known = contexts.clusters
        wanted = {name: contexts.find(name, "--also").addresses for name in given["also"]}
    except ValueError as error:
        raise ConsoleError(str(error)) from error
    addresses = split_addresses(given["name_servers"])
    name = next((each for each in sorted(known) if known[each] == addresses), "")
    is_given = ctx.get_parameter_source("name_servers") == ParameterSource.COMMANDLINE
    if not wanted and not is_given and is_loopback(given["listen"]):
        wanted = dict(known)
    wanted.pop(name, None)
    return name, wanted


def serve_console(given: dict[str, Any], name: str, others: dict[str, tuple[str, ...]]) -> int:
    """Serve the console until a signal ends it. Returns the exit code."""
    from sparrowmq.cli.serve import run, say_ready
    from sparrowmq.cli.stop_signal import stop_signal
    from sparrowmq.console.config import ConsoleConfig
    from sparrowmq.console.server import serve
    from sparrowmq.console.sockets import open_listener

    # The servers of `up` already log when they start and stop.
    set_up_logs(as_json=given["as_json"], level="warning" if given["with_parent"] else "info")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    config = ConsoleConfig(
        name_servers=split_addresses(given["name_servers"]),
        name=name,
        others=others,
        listen=given["listen"],
        port=given["port"],
        hosts=tuple(name.lower() for name in given["hosts"]),
        users=given["users"],
        tls_cert=given["tls_cert"],
        tls_key=given["tls_key"],
        read_only=given["read_only"],
        insecure=given["insecure"],
        state_dir=given["state"] or state_home() / "console",
        resets_dir=state_home() / "resets",
    )

    async def work() -> None:
        stopping = await stop_signal(with_parent=given["with_parent"])
        if given["fd"] is not None:
            listener = socket.socket(fileno=given["fd"])
        else:
            listener = open_listener(config.listen, config.port)
        with listener:
            await serve(config, listener, stopping, lambda url: say_ready(f"console {url}"))

    return run(work(), as_json=given["as_json"])


def state_home() -> Path:
    """The folder in which this user's commands keep persistent state."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "sparrowmq"


def commands() -> list[click.Command]:
    """For the program."""
    return [console]
