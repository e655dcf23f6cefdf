"""`sparrowmq context …`: named clusters, and the one that commands use."""

import sys
from collections.abc import Callable
from typing import TypeVar

import click

from sparrowmq.cli.command_group import Group
from sparrowmq.cli.completion import complete_contexts
from sparrowmq.cli.contexts import Contexts, change_contexts, known_contexts
from sparrowmq.cli.output import Report, Value, table
from sparrowmq.cli.remote import ADDRESSES
from sparrowmq.cli.shell import Shell, local_shell_options
from sparrowmq.cluster_address import (
    DEFAULT_ORIGIN,
    find_name_servers,
    split_addresses,
)

T = TypeVar("T")
_COLUMNS = (("NAME", "name"), ("NAME-SERVERS", "nameServers"), ("IN-USE", "inUse"))


@click.group(cls=Group)
def context() -> None:
    """Name clusters, and pick the one that commands use.

    Programs do not follow the context in use; they obey the variable SPARROWMQ_CONTEXT.
    """


@context.command("list")
@local_shell_options
def list_contexts(shell: Shell) -> None:
    """List the named clusters.

    \b
    Example:
      sparrowmq context list
    """
    known = _attempt(shell, known_contexts)
    empty = "there is no context; add one with: sparrowmq context add NAME --name-servers HOST:PORT"
    rows = [_row(known, name) for name in sorted(known.clusters)]
    shell.show(Report([table(_COLUMNS, rows, empty=empty)], notes=_overruling(known)))


@context.command()
@click.argument("name", required=False, shell_complete=complete_contexts)
@local_shell_options
def show(name: str | None, shell: Shell) -> None:
    """Show a named cluster; without NAME the one in use.

    \b
    Examples:
      sparrowmq context show
      sparrowmq context show production
    """
    known = _attempt(shell, known_contexts)
    wanted = name or known.in_use
    if wanted is None:
        shell.warn("no context is in use; pick one with: sparrowmq context use NAME")
        sys.exit(1)
    _attempt(shell, lambda: known.find(wanted, "the command" if name else "the line in-use"))
    shell.show(Report([table(_COLUMNS, [_row(known, wanted)])], notes=_overruling(known)))


@context.command()
@click.argument("name")
@click.option("--name-servers", "-n", metavar=ADDRESSES, required=True, help="Its name servers.")
@local_shell_options
def add(name: str, name_servers: str, shell: Shell) -> None:
    """Give a cluster a name.

    \b
    Example:
      sparrowmq context add production --name-servers 10.0.0.1:9876,10.0.0.2:9876
    """
    addresses = split_addresses(name_servers)
    _change(shell, lambda known: known.added(name, addresses), f"context {name} is added")


@context.command()
@click.argument("name", shell_complete=complete_contexts)
@local_shell_options
def use(name: str, shell: Shell) -> None:
    """Make commands use this cluster by default.

    An option or a variable of the environment that names another cluster counts first.

    \b
    Example:
      sparrowmq context use production
    """
    _change(shell, lambda known: known.used(name), f"commands use context {name}")


@context.command()
@click.argument("name", shell_complete=complete_contexts)
@local_shell_options
def remove(name: str, shell: Shell) -> None:
    """Forget a named cluster. The cluster itself is not touched.

    \b
    Example:
      sparrowmq context remove production
    """
    _change(shell, lambda known: known.removed(name), f"context {name} is removed")


def commands() -> list[click.Command]:
    """For the program."""
    return [context]


def _row(known: Contexts, name: str) -> list[Value]:
    return [name, list(known.clusters[name]), name == known.in_use]


def _overruling(known: Contexts) -> list[str]:
    """The option or variable that overrides the context in use, if any."""
    if known.in_use is None:
        return []
    try:
        found = find_name_servers(log=None)
    except ValueError as error:
        return [str(error)]
    if found.origin == DEFAULT_ORIGIN:
        return []
    return [f"here {found.origin} counts more: {', '.join(found.addresses)}"]


def _change(shell: Shell, change: Callable[[Contexts], Contexts], done: str) -> None:
    changed = _attempt(shell, lambda: change_contexts(change))
    if shell.as_json:
        rows = [_row(changed, name) for name in sorted(changed.clusters)]
        shell.show(Report([table(_COLUMNS, rows)]))
    shell.say(f"{done} ({changed.path})")
    for note in _overruling(changed):
        shell.say(note)


def _attempt(shell: Shell, work: Callable[[], T]) -> T:
    """Run `work` and return its result; a failure is one line and exit code 1."""
    try:
        return work()
    except ValueError as error:
        shell.warn(str(error))
    except OSError as error:
        shell.warn(f"{error.filename} cannot be written: {error.strerror}")
    sys.exit(1)
