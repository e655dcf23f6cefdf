"""Verbs of `sparrowmq broker` for brokers that run: list, show, config, clean."""

from collections.abc import Sequence

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.brokers import BrokerInfo
from sparrowmq.admin.cleaning import Cleanable, CleanedPart
from sparrowmq.admin.errors import NotFound, shown
from sparrowmq.admin.server_settings import ServerSettings
from sparrowmq.admin.values import SettingChange
from sparrowmq.cli.cluster_tables import broker_table, change_table, part
from sparrowmq.cli.command_group import Group
from sparrowmq.cli.completion import complete_brokers
from sparrowmq.cli.option_types import Whole
from sparrowmq.cli.output import Kind, Report, Table, Value, table
from sparrowmq.cli.shell import (
    Shell,
    dry_run_option,
    key_value_pairs,
    shell_options,
    yes_option,
)

_SETTINGS = (("KEY", "key"), ("VALUE", "value"), ("CHANGEABLE", "changeable"), ("ORIGIN", "origin"))
UNTIL_RESTART = "it holds until the next start; a setting of the server's own makes it last"

_id_option = click.option(
    "--id",
    "broker_id",
    type=Whole(min=0),
    metavar="ID",
    default=0,
    show_default=True,
    help="0 is the master, others are its slaves.",
)


@click.command("list")
@shell_options(watch=True)
def list_brokers(shell: Shell) -> None:
    """List all brokers, slaves among them.

    \b
    Example:
      sparrowmq broker list
    """

    async def look(admin: Admin) -> Report:
        listed = await admin.brokers()
        return Report([broker_table(listed)], errors=listed.errors)

    shell.report(look)


@click.command()
@click.argument("name", shell_complete=complete_brokers)
@_id_option
@click.option("--long", "is_long", is_flag=True, help="Everything that the broker reports.")
@shell_options(watch=True)
def show(name: str, broker_id: int, is_long: bool, shell: Shell) -> None:
    """Show how a broker is doing.

    \b
    Examples:
      sparrowmq broker show broker-a
      sparrowmq broker show broker-a --id 1 --long
    """

    async def look(admin: Admin) -> Report:
        listed = await admin.brokers()
        found = next(
            (each for each in listed if (each.name, each.broker_id) == (name, broker_id)), None
        )
        if found is None and broker_id == 0 and name in (left := await admin.drained_brokers()):
            raise NotFound(
                "broker",
                name,
                f"it was drained and is at {left[name]}; resume it with: sparrowmq broker resume"
                f" {name}",
            )
        if found is None:
            known = shown(f"{each.name} --id {each.broker_id}" for each in listed)
            raise NotFound("broker", f"{name} with id {broker_id}", f"registered are: {known}")
        errors = tuple(each for each in listed.errors if each.address == found.address)
        return Report([_all_keys(found) if is_long else _groups(found)], errors=errors)

    shell.report(look)


def _all_keys(broker: BrokerInfo) -> Table:
    known = broker.runtime.table if broker.runtime else {}
    rows = [[name, known[name]] for name in sorted(known)]
    return table((("KEY", "key"), ("VALUE", "value")), rows)


def _groups(broker: BrokerInfo) -> Table:
    now = broker.runtime
    rows: list[list[Value]] = [
        ["broker", "cluster", broker.cluster],
        ["broker", "role", broker.role],
        ["broker", "address", broker.address],
    ]
    if now is not None:
        rows += [
            ["broker", "version", now.version],
            ["broker", "sparrowmq version", now.sparrowmq_version],
            ["broker", "since", now.started],
            ["broker", "drain", now.drain],
            ["traffic", "stored per second", now.stored_per_s],
            ["traffic", "delivered per second", now.delivered_per_s],
            ["traffic", "stored today", now.stored_today],
            ["traffic", "delivered today", now.delivered_today],
            ["traffic", "busy", now.busy_reason],
            ["store", "disk used", part(now.disk_used)],
            ["store", "oldest message", now.oldest_message],
            ["store", "waiting timers", now.waiting_timers],
            ["replication", "copies in sync", now.copies_in_sync],
            ["replication", "bytes behind", now.behind_bytes],
            ["replication", "seconds behind", "" if broker.is_master else now.behind_s],
        ]
    return table((("GROUP", "group"), ("KEY", "key"), ("VALUE", "value", Kind.MIXED)), rows)


# ---- settings


@click.group(cls=Group)
def config() -> None:
    """Look at the settings of a running broker, and change them."""


@config.command("get")
@click.argument("name", shell_complete=complete_brokers)
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@_id_option
@shell_options()
def get_config(name: str, keys: tuple[str, ...], broker_id: int, shell: Shell) -> None:
    """Show the settings in force, by Apache's names.

    \b
    Examples:
      sparrowmq broker config get broker-a
      sparrowmq broker config get broker-a fileReservedTime deleteWhen
    """

    async def look(admin: Admin) -> Report:
        found = await admin.broker_settings(name, broker_id=broker_id)
        rows = [[*row, found.origin_of(str(row[0]))] for row in setting_rows(found, keys)]
        return Report([table(_SETTINGS, rows)])

    shell.report(look)


def setting_rows(found: ServerSettings, keys: tuple[str, ...]) -> list[list[Value]]:
    """The settings asked for, or all. Raises NotFound."""
    found.check_known(keys)
    return [
        [name, found.values[name], None if found.changeable is None else name in found.changeable]
        for name in (keys or sorted(found.values))
    ]


@config.command("set")
@click.argument("name", shell_complete=complete_brokers)
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE...")
@_id_option
@dry_run_option
@shell_options()
def set_config(
    name: str, pairs: tuple[str, ...], broker_id: int, dry_run: bool, shell: Shell
) -> None:
    """Change settings while the broker runs: all of them, or none.

    \b
    Examples:
      sparrowmq broker config set broker-a fileReservedTime=48 --dry-run
      sparrowmq broker config set broker-a fileReservedTime=48 deleteWhen=3
    """
    values = key_value_pairs(pairs, "the setting")

    async def work(admin: Admin) -> tuple[list[SettingChange], bool]:
        is_kept = (await admin.broker_settings(name, broker_id=broker_id)).is_kept
        changes = await admin.change_broker_settings(
            name, values, broker_id=broker_id, dry_run=dry_run
        )
        return changes, is_kept

    changes, is_kept = shell.change(work, dry_run=dry_run)
    shell.show(Report([change_table(changes)]))
    if dry_run:
        shell.dry()
    elif changes:
        shell.done(f"broker {name} is changed")
        shell.say(APACHE_KEEPS if is_kept else UNTIL_RESTART)


APACHE_KEEPS = "Apache's server writes it into the file that it was started with, if there is one"


# ---- cleaning


@click.command()
@click.argument("name", shell_complete=complete_brokers)
@click.option("--log", is_flag=True, help="Log files whose messages were kept for long enough.")
@click.option("--queues", is_flag=True, help="Queue files whose messages are gone.")
@click.option(
    "--unused-topics", is_flag=True, help="Queues of topics that the broker no longer has."
)
@dry_run_option
@yes_option
@shell_options()
def clean(
    name: str,
    log: bool,
    queues: bool,
    unused_topics: bool,
    dry_run: bool,
    yes: bool,
    shell: Shell,
) -> None:
    """Make a broker delete what is expired or unused now, not at its scheduled hour.

    Brokers do not say beforehand how much that is.

    \b
    Examples:
      sparrowmq broker clean broker-a --log
      sparrowmq broker clean broker-a --log --queues --unused-topics --yes
    """
    chosen = {Cleanable.LOG: log, Cleanable.QUEUES: queues, Cleanable.UNUSED_TOPICS: unused_topics}
    what = [each for each, is_wanted in chosen.items() if is_wanted]
    if not what:
        raise click.UsageError("say what to clean: --log, --queues, --unused-topics")

    async def look(admin: Admin) -> ServerSettings:
        return await admin.broker_settings(name)

    async def work(admin: Admin) -> list[CleanedPart]:
        return await admin.clean_broker(name, what)

    shell.ask(look)
    if dry_run:
        shell.show(_cleaned([(each, None) for each in what]))
        shell.dry()
        return
    question = f"expired or unused {', '.join(what)} of broker {name} would be deleted"
    shell.confirm(question, name, yes=yes)
    done = shell.change(work)
    shell.show(_cleaned([(each.what, each.deleted) for each in done]))
    shell.done(f"broker {name} is cleaned")


def _cleaned(rows: Sequence[tuple[Cleanable, int | None]]) -> Report:
    return Report([table((("WHAT", "what"), ("DELETED", "deleted")), rows)])


def commands() -> list[click.Command]:
    """For the program."""
    return [list_brokers, show, config, clean]
