"""`sparrowmq migrate plan | run FROM TO`: topics, groups, settings and progress of another cluster.

Exit codes: 0 all of it moves; 1 nothing does, because a side does not answer; 3 some of it does.
"""

import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.migration import ClusterState, MigrationItem, MigrationState
from sparrowmq.cli.command_group import Group
from sparrowmq.cli.completion import complete_contexts
from sparrowmq.cli.option_types import Wait
from sparrowmq.cli.output import Report, Value, table
from sparrowmq.cli.shell import IN_PART, Shell, limit_option
from sparrowmq.cluster_address import contexts_file, read_contexts, split_addresses

_NOT_MOVED = (MigrationState.DIFFERS, MigrationState.LEFT, MigrationState.FAILED)


@click.group("migrate", cls=Group)
def app() -> None:
    """Copy topics, groups and progress to another cluster.

    Settings are copied too, messages are not.
    """


def commands() -> list[click.Command]:
    """For the program."""
    return [app]


class Place(NamedTuple):
    """A cluster or a directory."""

    name_servers: str
    directory: Path | None
    origin: str = ""


class _PlaceType(click.ParamType[Place]):
    """A context, addresses of name servers, or a store directory."""

    name = "place"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Place:
        """Find out which of these it is."""
        text = str(value)
        if Path(text).is_dir():
            return Place("", Path(text))
        try:
            contexts = read_contexts(contexts_file())
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if text in contexts:
            return Place(";".join(contexts[text]), None, f" (from context {text})")
        return Place(self._addresses(text, sorted(contexts), param, ctx), None)

    def _addresses(
        self,
        text: str,
        contexts: list[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str:
        from sparrowmq.net.peers import split_address

        known = f" ({', '.join(contexts)})" if contexts else " (there is none)"
        allowed = f"give host:port of name servers, a context{known} or a store directory"
        addresses = split_addresses(text)
        if not addresses:
            self.fail(f"{text!r} names nothing: {allowed}", param, ctx)
        for address in addresses:
            try:
                split_address(address)
            except ValueError:
                self.fail(f"{text!r} is none of these: {allowed}", param, ctx)
        return ";".join(addresses)


_PLACE = _PlaceType()


def _options(command: click.Command) -> click.Command:
    options = [
        click.Argument(["source"], type=_PLACE, metavar="FROM", shell_complete=complete_contexts),
        click.Argument(["target"], type=_PLACE, metavar="TO", shell_complete=complete_contexts),
        click.Option(
            ["--topics"], default="*", metavar="GLOB", help="Only topics whose names match."
        ),
        click.Option(
            ["--groups"], default="*", metavar="GLOB", help="Only groups whose names match."
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON document."),
        click.Option(
            ["--timeout", "timeout_s"],
            type=Wait(),
            metavar="DURATION",
            default=5.0,
            show_default="5s",
            help="How long each broker may take to answer.",
        ),
        click.Option(["--quiet", "-q", "is_quiet"], is_flag=True, help="Only data and errors."),
        click.Option(["--verbose", "-v", "is_verbose"], is_flag=True, help="Traces of errors."),
    ]
    command.params = [*options, *command.params]
    return command


@click.command("plan")
@limit_option
def plan(limit: int, **given: object) -> None:
    """Say what a run would do, and what cannot move. Changes nothing.

    \b
    Examples:
      sparrowmq migrate plan 10.0.0.1:9876 127.0.0.1:9876
      sparrowmq migrate plan /data/rocketmq/store production --topics 'order*'
    """
    _migrate(limit, dry_run=True, **given)  # type: ignore[arg-type]


@click.command("run")
@limit_option
@click.option("--dry-run", is_flag=True, help="The same as plan.")
def run(limit: int, dry_run: bool, **given: object) -> None:
    """Copy to TO what it lacks. Safe to stop and to repeat: existing settings of TO do not change.

    Progress is moved by time: a group continues with the first message stored after the last
    one that it has consumed. Its members must be stopped in TO.

    \b
    Example:
      sparrowmq migrate run 10.0.0.1:9876 127.0.0.1:9876
    """
    _migrate(limit, dry_run=dry_run, **given)  # type: ignore[arg-type]


app.add_command(_options(plan))
app.add_command(_options(run))


def _migrate(
    limit: int,
    *,
    dry_run: bool,
    source: Place,
    target: Place,
    topics: str,
    groups: str,
    as_json: bool,
    timeout_s: float,
    is_quiet: bool,
    is_verbose: bool,
) -> None:
    if target.directory is not None:
        raise click.UsageError(
            f"TO is the directory {target.directory}: only its broker changes it. Start one there,"
            " and give the address of its name server; a store of Apache's opens as it is"
        )
    if target.name_servers and target.name_servers == source.name_servers:
        raise click.UsageError("FROM and TO are the same cluster")

    def shell_of(place: Place) -> Shell:
        return Shell(
            name_servers=place.name_servers,
            origin=place.origin,
            timeout_s=timeout_s,
            as_json=as_json,
            is_quiet=is_quiet,
            is_verbose=is_verbose,
        )

    state = _read(shell_of(source), source, topics, groups)
    shell = shell_of(target)
    items = shell.change(lambda admin: admin.import_state(state, dry_run=dry_run), dry_run=dry_run)
    shell.show(_report(state, items, limit))
    counts = Counter(item.state for item in items)
    summary = ", ".join(f"{number} {found}" for found, number in sorted(counts.items()))
    shell.done(f"{'nothing was changed: ' * dry_run}{summary or 'nothing to move'}")
    if state.errors or any(counts[each] for each in _NOT_MOVED):
        sys.exit(IN_PART)


def _read(shell: Shell, source: Place, topics: str, groups: str) -> ClusterState:
    if source.directory is None:

        async def export(admin: Admin) -> ClusterState:
            return await admin.export_state(topics=topics, groups=groups)

        return shell.ask(export)
    from sparrowmq.cli.store_state import is_store, state_of_directory
    from sparrowmq.store.errors import StoreError

    if not is_store(source.directory):
        raise click.UsageError(
            f"FROM is the directory {source.directory}, which holds no store: there is no commitlog"
        )
    try:
        return state_of_directory(source.directory, topics=topics, groups=groups)
    except (StoreError, ValueError, OSError) as error:
        shell.warn(str(error))
        sys.exit(1)


def _report(state: ClusterState, items: list[MigrationItem], limit: int) -> Report:
    rows: list[tuple[Value, ...]] = [
        (each.what, each.name, each.state, each.why) for each in items[: limit or None]
    ]
    columns = [("WHAT", "what"), ("NAME", "name"), ("STATE", "state"), ("WHY", "why")]
    found = table(columns, rows, total=len(items), empty="nothing to move")
    return Report([found], errors=state.errors)
