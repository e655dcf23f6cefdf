"""Options that the commands of `sparrowmq pipeline` share: times, Spark, the folder of state."""

import functools
import getpass
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click

from sparrowmq.cli.logs import with_log_level
from sparrowmq.cli.output import Report, Table, Value
from sparrowmq.cli.remote import ADDRESSES, HELP, ORIGIN, context_option, found_addresses
from sparrowmq.cli.shell import Shell
from sparrowmq.cluster_address import DEFAULT

P = ParamSpec("P")


T = TypeVar("T")


_address_option = click.option(
    "--name-server",
    "--name-servers",
    "-n",
    "name_server",
    metavar=ADDRESSES,
    default=None,
    show_default=DEFAULT,
    callback=found_addresses,
    help=HELP,
)


def name_server_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--name-servers` and `--context`; the command gets the addresses as `name_server`."""
    return _address_option(context_option(command))


_master = click.option(
    "--master",
    default="local[*]",
    show_default=True,
    help="Where Spark runs: local[4], spark://host:7077, yarn, k8s://…",
)


_settings = click.option(
    "--conf",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A Spark setting; may be repeated.",
)


state_option = click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the journals of jobs. [default: ~/.local/state/sparrowmq/pipelines]",
)


dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show what would be copied, and stop."
)


_VERBOSE = "sparrowmq.verbose"


def _remember_verbose(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[_VERBOSE] = True  # shared by a group and its commands


verbose_option = click.option(
    "--verbose",
    is_flag=True,
    expose_value=False,
    callback=_remember_verbose,
    help="Show the trace of an error after its message.",
)


def is_verbose() -> bool:
    """Whether the running command was asked for traces."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_VERBOSE))


def spark_options(command: Callable[P, T]) -> Callable[..., T]:
    """--master, --conf, --verbose and --log-level; the command gets `master`, and `settings` as a
    dict."""

    @_master
    @_settings
    @verbose_option
    @with_log_level
    @functools.wraps(command)
    def wrapped(*args: Any, settings: tuple[str, ...], **values: Any) -> T:
        return command(*args, settings=_pairs(settings), **values)  # type: ignore[arg-type]

    return wrapped


def _pairs(texts: tuple[str, ...]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--conf {text!r} is not NAME=VALUE")
        pairs[name] = value
    return pairs


def show_document(facts: dict[str, Value], *tables: Table) -> None:
    """Print what a job came to as one JSON document."""
    Shell(name_servers="", as_json=True).show(Report(tables, facts=facts))


def say_changed(name_server: str) -> None:
    """Name the cluster in which a job has changed something."""
    origin = click.get_current_context().meta.get(ORIGIN, "")
    shell = Shell(name_servers=name_server, origin=origin)
    shell.say(f"changed: {shell.where}")


def state_folder(given: Path | None) -> Path:
    """The folder for journals: the given one, or the default."""
    if given is not None:
        return given
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "sparrowmq" / "pipelines"


def operator_name() -> str:
    """Who runs this command, for other operators: user and machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user may have only a number
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
