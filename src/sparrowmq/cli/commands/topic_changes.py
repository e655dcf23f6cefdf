"""`sparrowmq topic create`, `update`, `spread` and `delete`."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.errors import AdminError, AlreadyExists, NotFound
from sparrowmq.admin.spreads import TopicShare
from sparrowmq.admin.topic_readers import TopicReader
from sparrowmq.admin.topics import NEW_QUEUES, TopicInfo
from sparrowmq.admin.values import Listing, SettingChange
from sparrowmq.cli.cluster_tables import change_table
from sparrowmq.cli.completion import complete_brokers, complete_topics
from sparrowmq.cli.option_types import Permission, Whole
from sparrowmq.cli.output import Kind, Report, Table, Value, table
from sparrowmq.cli.shell import (
    Shell,
    brokers_option,
    check_where,
    cluster_option,
    dry_run_option,
    shell_options,
    yes_option,
)
from sparrowmq.client.errors import counted

_TYPE = "message.type"
_TYPES = ("normal", "fifo", "delay", "transaction", "mixed")
_RESULT = (("BROKER", "broker"), ("RESULT", "result"))


def _setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of create and update."""
    options = [
        click.option(
            "--queues",
            type=Whole(min=1),
            metavar="N",
            help="Queues on each broker, for reading and writing.",
        ),
        click.option("--read-queues", type=Whole(min=0), metavar="N", help="For reading only."),
        click.option("--write-queues", type=Whole(min=0), metavar="N", help="For writing only."),
        click.option(
            "--perm",
            type=Permission(),
            metavar="PERM",
            help="2 or w: write, 4 or r: read, 6 or rw: both.",
        ),
        click.option(
            "--order/--no-order",
            default=None,
            help="Mark the topic as one whose queues are consumed in order.",
        ),
        click.option(
            "--type",
            "message_type",
            type=click.Choice(_TYPES, case_sensitive=False),
            help="Which messages brokers of 5.x take.",
        ),
        click.option(
            "--attribute",
            "attribute_texts",
            multiple=True,
            metavar="KEY=VALUE",
            help="Set an attribute; -KEY removes one. May be repeated.",
        ),
        brokers_option,
        cluster_option,
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _check_queues(settings: dict[str, Any]) -> None:
    if settings["queues"] and None not in (settings["read_queues"], settings["write_queues"]):
        raise click.UsageError("--queues excludes --read-queues together with --write-queues")


def _attributes(texts: Sequence[str], message_type: str | None) -> dict[str, str | None] | None:
    found: dict[str, str | None] = {}
    for each in texts:
        name, equals, value = each.removeprefix("+").partition("=")
        if each.startswith("-") and not equals and len(each) > 1:
            name, value_or_none = each[1:], None
        elif equals and name:
            value_or_none = value
        else:
            raise click.UsageError(f"--attribute {each!r} is neither KEY=VALUE nor -KEY")
        if name in found:
            raise click.UsageError(f"attribute {name} is given twice")
        found[name] = value_or_none
    if message_type is not None:
        if _TYPE in found:
            raise click.UsageError(f"--type and --attribute {_TYPE} cannot be combined")
        found[_TYPE] = message_type.upper()
    return found or None


# ---- create


@click.command()
@click.argument("name")
@_setting_options
@click.option("--if-missing", is_flag=True, help="Leave a topic that exists as it is.")
@dry_run_option
@shell_options()
def create(
    name: str,
    message_type: str | None,
    attribute_texts: tuple[str, ...],
    brokers: tuple[str, ...],
    cluster: str | None,
    if_missing: bool,
    dry_run: bool,
    shell: Shell,
    **settings: Any,
) -> None:
    """Create a topic, by default with 8 queues on each broker.

    A topic that exists stays as it is. If it differs from the given settings, the command fails;
    `sparrowmq topic update` changes it.

    \b
    Examples:
      sparrowmq topic create orders
      sparrowmq topic create orders --queues 16 --type fifo
      sparrowmq topic create orders --broker broker-a --broker broker-b --if-missing
    """
    check_where(brokers, cluster)
    _check_queues(settings)
    attributes = _attributes(attribute_texts, message_type)
    if None in (attributes or {}).values():
        raise click.UsageError(
            "an attribute of a new topic needs a value; sparrowmq topic update removes one"
        )
    given = {each: value for each, value in settings.items() if value is not None}

    async def work(admin: Admin) -> tuple[dict[str, int], frozenset[str]] | None:
        before = await _brokers_with(admin, name)
        if if_missing and before:
            return None
        try:
            targets = await admin.create_topic(
                name,
                **given,
                attributes=attributes,
                brokers=brokers,
                cluster=cluster,
                replace=False,
                dry_run=dry_run,
            )
        except AlreadyExists as error:
            raise AdminError(_other_settings(name, error)) from error
        new = dict.fromkeys(targets, _most_queues(**settings)) if dry_run else {}
        if dry_run and not before:
            return new, before
        found = (await admin.topic(name)).settings
        now = {each.broker: max(each.read_queues, each.write_queues) for each in found}
        return new | now, before

    done = shell.change(work, dry_run=dry_run)
    if done is None:
        shell.say(f"topic {name} exists; nothing was changed")
        return
    made, before = done
    columns = (("BROKER", "broker"), ("QUEUES", "queues"))
    shell.show(Report([table(columns, sorted(made.items()))]))
    if dry_run:
        shell.dry()
        return
    if before >= made.keys():
        shell.say(f"topic {name} exists already, with these settings; nothing was changed")
        return
    where = f" on {', '.join(sorted(made.keys() - before))}" if before else ""
    shell.done(f"topic {name} was created{where}")


def _most_queues(
    queues: int | None, read_queues: int | None, write_queues: int | None, **_: Any
) -> int:
    """The queues that a topic with these settings would have on a broker."""
    otherwise = queues or NEW_QUEUES
    return max(read_queues or otherwise, write_queues or otherwise)


async def _brokers_with(admin: Admin, name: str) -> frozenset[str]:
    """The brokers that have a topic; none if it does not exist."""
    try:
        route = await admin.route(name)
    except NotFound:
        return frozenset()
    return frozenset(each.broker_name for each in route.queue_datas)


def _other_settings(name: str, error: AlreadyExists) -> str:
    return (
        f"topic {name} exists with other settings ({'; '.join(error.differences)}); nothing was"
        f" changed. To change it: sparrowmq topic update {name} …; to accept it: --if-missing"
    )


# ---- update


@click.command()
@click.argument("name", shell_complete=complete_topics)
@_setting_options
@dry_run_option
@yes_option
@shell_options()
def update(
    name: str,
    message_type: str | None,
    attribute_texts: tuple[str, ...],
    brokers: tuple[str, ...],
    cluster: str | None,
    dry_run: bool,
    yes: bool,
    shell: Shell,
    **settings: Any,
) -> None:
    """Change the given settings of a topic, on all of its brokers or some.

    Messages in queues that are removed from readers are no longer delivered: the command shows
    them, and asks.

    \b
    Examples:
      sparrowmq topic update orders --queues 16 --dry-run
      sparrowmq topic update orders --perm r --broker broker-a
      sparrowmq topic update orders --attribute -message.type
    """
    check_where(brokers, cluster)
    _check_queues(settings)
    attributes = _attributes(attribute_texts, message_type)
    if attributes is None and all(value is None for value in settings.values()):
        raise click.UsageError("nothing to change is given; see: sparrowmq topic update --help")

    async def change(admin: Admin, *, is_dry: bool) -> list[SettingChange]:
        return await admin.update_topic(
            name,
            **settings,
            attributes=attributes,
            brokers=brokers,
            cluster=cluster,
            dry_run=is_dry,
        )

    async def look(admin: Admin) -> tuple[list[SettingChange], Table | None]:
        changes = await change(admin, is_dry=True)
        return changes, await _lost_queues(admin, name, changes)

    changes, lost = shell.ask(look)
    tables = [change_table(changes), *([lost] if lost else [])]
    if dry_run:
        shell.show(Report(tables))
        shell.dry()
        return
    if lost and lost.rows:
        shell.preview(Report(tables))
        shell.confirm(f"topic {name} would lose queues with messages", name, yes=yes)
    shell.change(lambda admin: change(admin, is_dry=False))
    shell.show(Report(tables))
    if changes:
        shell.done(f"topic {name} is changed")


async def _lost_queues(admin: Admin, name: str, changes: Sequence[SettingChange]) -> Table | None:
    """Queues with messages that readers would lose; None if they lose none. Raises AdminError if a
    broker does not report them: no loss may go unnoticed."""
    fewer = {
        each.broker: int(each.after or 0)
        for each in changes
        if each.setting == "read_queues" and int(each.after or 0) < int(each.before or 0)
    }
    if not fewer:
        return None
    info, readers = await admin.topic(name), await admin.topic_readers(name)
    for failure in (*info.errors, *readers.errors):
        if not failure.is_away:  # nothing changes there
            raise AdminError(f"nothing was changed, since not all brokers answer: {failure}")
    rows: list[list[Value]] = [
        [
            each.queue.place,
            each.messages,
            max((reader.unread.get(each.queue, 0) for reader in readers), default=each.messages),
            [reader.group for reader in readers if reader.unread.get(each.queue)],
        ]
        for each in info.queues
        if each.messages and each.queue.queue_id >= fewer.get(each.queue.broker_name, 2**31)
    ]
    columns = (
        ("LOST-QUEUE", "queue"),
        ("MESSAGES", "messages"),
        ("UNREAD", "unread"),
        ("BY", "groups"),
    )
    return table(columns, rows, key="lostQueues", empty="the queues that go are empty")


# ---- spread


@click.command()
@click.argument("name", shell_complete=complete_topics)
@click.option(
    "--broker",
    "brokers",
    multiple=True,
    required=True,
    metavar="NAME",
    shell_complete=complete_brokers,
    help="A broker that lacks the topic; may be repeated.",
)
@dry_run_option
@click.option("--yes", is_flag=True, help="Also a topic whose order would suffer.")
@shell_options()
def spread(name: str, brokers: tuple[str, ...], dry_run: bool, yes: bool, shell: Shell) -> None:
    """Put a topic on more brokers, with the settings that it has.

    All brokers get as many queues as the one that has most. Messages stay where they are.

    \b
    Examples:
      sparrowmq topic spread orders --broker broker-b --dry-run
      sparrowmq topic spread orders --broker broker-b --broker broker-c
    """

    async def work(admin: Admin) -> list[TopicShare]:
        return await admin.spread_topic(name, brokers, accept_disorder=yes, dry_run=dry_run)

    rows: list[list[Value]] = [
        [each.broker, each.queues_before, each.queues_after]
        for each in shell.change(work, dry_run=dry_run)
    ]
    columns = (
        ("BROKER", "broker"),
        ("QUEUES-WAS", "queuesWas"),
        ("QUEUES-NOW", "queuesNow"),
    )
    shell.show(Report([table(columns, rows)]))
    if dry_run:
        shell.dry()
    else:
        shell.done(f"topic {name} is spread; producers use the new queues within 30 s")


# ---- delete


@click.command()
@click.argument("name", shell_complete=complete_topics)
@dry_run_option
@yes_option
@shell_options()
def delete(name: str, dry_run: bool, yes: bool, shell: Shell) -> None:
    """Delete a topic with its messages and every group's progress in it.

    \b
    Examples:
      sparrowmq topic delete orders --dry-run
      sparrowmq topic delete orders --yes
    """

    async def look(admin: Admin) -> tuple[TopicInfo, Listing[TopicReader], list[str]]:
        info, readers = await admin.topic(name), await admin.topic_readers(name)
        return info, readers, sorted(await admin.drained_brokers())

    info, readers, drained = shell.ask(look)
    concerned = _concerned(name, info, readers)
    if dry_run:
        shell.show(concerned)
        shell.dry()
        sys.exit(3 if concerned.errors else 0)
    for failure in concerned.errors:
        if not failure.is_away:
            shell.warn(f"nothing was changed, since not all brokers answer: {failure}")
            sys.exit(1)
    if not yes:
        shell.preview(concerned)
    live = sum(len(each.members) for each in readers)
    shell.confirm(
        f"topic {name} would be deleted: {counted(info.messages, 'message')},"
        f" {counted(len(readers), 'group')} with {counted(live, 'live member')}",
        name,
        yes=yes,
    )
    done = shell.change(lambda admin: admin.delete_topic(name))
    having = {each.broker for each in info.settings} | {each.broker for each in info.errors}
    rows: list[list[Value]] = [
        [each, "deleted" if each in having else "not there"] for each in done
    ]
    shell.show(Report([table(_RESULT, rows)]))
    shell.done(f"topic {name} is deleted, with {counted(info.messages, 'message')}")
    for broker in drained:
        shell.warn(
            f"{broker} is drained and not asked: if it has the topic, the topic is back after"
            f" sparrowmq broker resume {broker}; then run sparrowmq topic delete {name} again"
        )


def _concerned(name: str, info: TopicInfo, readers: Listing[TopicReader]) -> Report:
    rows: list[list[Value]] = [[each.group, each.lag, list(each.members)] for each in readers]
    columns = (("GROUP", "group"), ("LAG", "lag"), ("MEMBERS", "members"))
    known = {each.broker for each in info.errors}
    return Report(
        [table(columns, rows, key="groups", empty="no group reads it")],
        errors=(*info.errors, *(each for each in readers.errors if each.broker not in known)),
        facts={"topic": name, "messages": info.messages, "lastStored": info.last_stored or ""},
        kinds={"lastStored": Kind.TIME},
    )


def commands() -> list[click.Command]:
    """For `topic`."""
    return [create, update, spread, delete]
