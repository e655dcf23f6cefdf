"""Verbs of `sparrowmq nameserver` for running name servers: list, config, kv."""

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.errors import NotFound
from sparrowmq.admin.server_settings import ServerSettings
from sparrowmq.admin.values import Listing, SettingChange
from sparrowmq.cli.cluster_tables import change_table
from sparrowmq.cli.command_group import Group
from sparrowmq.cli.commands.broker_admin import APACHE_KEEPS, UNTIL_RESTART, setting_rows
from sparrowmq.cli.output import Report, Value, table
from sparrowmq.cli.shell import (
    Shell,
    dry_run_option,
    key_value_pairs,
    shell_options,
    yes_option,
)

_SERVERS = (
    ("ADDRESS", "address"),
    ("ANSWERS", "answers"),
    ("BROKERS", "brokers"),
    ("TOPICS", "topics"),
)
_SETTINGS = (
    ("NAME-SERVER", "nameServer"),
    ("KEY", "key"),
    ("VALUE", "value"),
    ("CHANGEABLE", "changeable"),
)
_PAIRS = (("KEY", "key"), ("VALUE", "value"))


@click.command("list")
@shell_options(watch=True)
def list_servers(shell: Shell) -> None:
    """List the name servers, and what each of them knows.

    They do not know each other: those of one cluster should have the same numbers.

    \b
    Example:
      sparrowmq nameserver list -n 10.0.0.1:9876,10.0.0.2:9876
    """

    async def look(admin: Admin) -> Report:
        listed = await admin.name_servers()
        rows = [[each.address, each.answers, each.brokers, each.topics] for each in listed]
        return Report([table(_SERVERS, rows)], errors=listed.errors)

    shell.report(look)


# ---- settings


@click.group(cls=Group)
def config() -> None:
    """Look at the settings of running name servers, and change them."""


@config.command("get")
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@shell_options()
def get_config(keys: tuple[str, ...], shell: Shell) -> None:
    """Show the settings of each name server, by Apache's names.

    \b
    Examples:
      sparrowmq nameserver config get
      sparrowmq nameserver config get orderMessageEnable
    """

    async def look(admin: Admin) -> Report:
        listed = await admin.name_server_settings()
        rows = [[each.address, *row] for each in listed for row in setting_rows(each, keys)]
        return Report([table(_SETTINGS, rows)], errors=listed.errors)

    shell.report(look)


@config.command("set")
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE...")
@dry_run_option
@shell_options()
def set_config(pairs: tuple[str, ...], dry_run: bool, shell: Shell) -> None:
    """Change settings of all name servers while they run.

    \b
    Examples:
      sparrowmq nameserver config set needWaitForService=true --dry-run
      sparrowmq nameserver config set needWaitForService=true
    """
    values = key_value_pairs(pairs, "the setting")

    async def work(admin: Admin) -> tuple[list[SettingChange], Listing[ServerSettings]]:
        settings = await admin.name_server_settings()
        return await admin.change_name_server_settings(values, dry_run=dry_run), settings

    changes, settings = shell.change(work, dry_run=dry_run)
    shell.show(Report([change_table(changes, server="SERVER")]))
    if dry_run:
        shell.dry()
    elif changes:
        shell.done("the name servers are changed")
        shell.say(APACHE_KEEPS if settings[0].is_kept else UNTIL_RESTART)


# ---- key-value configuration


@click.group(cls=Group)
def kv() -> None:
    """Keys and values that name servers keep, by namespace."""


@kv.command("list")
@click.argument("namespace")
@shell_options()
def list_keys(namespace: str, shell: Shell) -> None:
    """List the keys of a namespace.

    \b
    Example:
      sparrowmq nameserver kv list ORDER_TOPIC_CONFIG
    """

    async def look(admin: Admin) -> Report:
        found = await admin.key_values(namespace)
        rows: list[list[Value]] = [[key, found[key]] for key in sorted(found)]
        return Report([table(_PAIRS, rows, empty="no key is in it")])

    shell.report(look)


@kv.command("get")
@click.argument("namespace")
@click.argument("key")
@shell_options()
def get_key(namespace: str, key: str, shell: Shell) -> None:
    """Show the value of a key.

    \b
    Example:
      sparrowmq nameserver kv get ORDER_TOPIC_CONFIG orders
    """

    async def look(admin: Admin) -> Report:
        return Report([table(_PAIRS, [[key, await admin.key_value(namespace, key)]])])

    shell.report(look)


@kv.command("set")
@click.argument("namespace")
@click.argument("key")
@click.argument("value")
@dry_run_option
@shell_options()
def set_key(namespace: str, key: str, value: str, dry_run: bool, shell: Shell) -> None:
    """Set the value of a key on all name servers.

    \b
    Example:
      sparrowmq nameserver kv set ORDER_TOPIC_CONFIG orders broker-a:4
    """

    async def work(admin: Admin) -> str:
        try:
            before = await admin.key_value(namespace, key)
        except NotFound:
            before = ""
        if not dry_run:
            await admin.set_key_value(namespace, key, value)
        return before

    shell.show(_changed_key(key, shell.change(work, dry_run=dry_run), value))
    if dry_run:
        shell.dry()
        return
    shell.done(f"key {key} of namespace {namespace} is set")


@kv.command("delete")
@click.argument("namespace")
@click.argument("key")
@dry_run_option
@yes_option
@shell_options()
def delete_key(namespace: str, key: str, dry_run: bool, yes: bool, shell: Shell) -> None:
    """Delete a key from all name servers.

    \b
    Example:
      sparrowmq nameserver kv delete ORDER_TOPIC_CONFIG orders --yes
    """
    value = shell.ask(lambda admin: admin.key_value(namespace, key))
    what = f"key {key} of namespace {namespace} ({value}) would be deleted"
    if dry_run:
        shell.show(_changed_key(key, value, ""))
        shell.dry()
        return
    shell.confirm(what, key, yes=yes)
    shell.change(lambda admin: admin.delete_key_value(namespace, key))
    shell.show(_changed_key(key, value, ""))
    shell.done(f"key {key} of namespace {namespace} is deleted")


def _changed_key(key: str, before: str, after: str) -> Report:
    columns = (("KEY", "key"), ("WAS", "was"), ("NOW", "now"))
    return Report([table(columns, [[key, before, after]])])


def commands() -> list[click.Command]:
    """For the program."""
    return [list_servers, config, kv]
