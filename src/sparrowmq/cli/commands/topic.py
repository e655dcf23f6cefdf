"""`sparrowmq topic …`: looking at topics. Changing them is in `topic_changes`."""

from collections.abc import Collection, Iterable, Sequence

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.brokers import BrokerInfo
from sparrowmq.admin.topic_figures import Busy, TopicFigures
from sparrowmq.admin.topic_readers import TopicReader
from sparrowmq.admin.topics import TopicInfo, TopicSettings
from sparrowmq.cli.command_group import Group
from sparrowmq.cli.commands import topic_changes
from sparrowmq.cli.completion import complete_topics
from sparrowmq.cli.output import Column, Kind, Report, Table, Value, table
from sparrowmq.cli.shell import Shell, limit_option, match_option, selected, shell_options
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import is_dlq_topic, is_retry_topic, is_system_topic
from sparrowmq.protocol.perm import perm_text
from sparrowmq.protocol.route import ClusterInfo, TopicRoute

_LONG = (
    ("NAME", "name"),
    ("QUEUES", "queues"),
    ("PERM", "perm"),
    ("TYPE", "type"),
    ("BROKERS", "brokers"),
    Column("MESSAGES", "messages", Kind.NUMBER, is_sum=True),
    Column("IN/S", "inPerS", Kind.NUMBER, is_sum=True),
)
_SETTINGS = (
    ("BROKER", "broker"),
    ("READ", "readQueues"),
    ("WRITE", "writeQueues"),
    ("PERM", "perm"),
    ("ORDER", "order"),
    ("ATTRIBUTES", "attributes"),
)
_QUEUES = (
    ("QUEUE", "queue"),
    ("OLDEST", "oldest"),
    ("NEXT", "next"),
    ("MESSAGES", "messages"),
    ("LAST-STORED", "lastStored", Kind.TIME),
)
_READERS = (
    Column("GROUP", "group"),
    Column("LAG", "lag", is_sum=True),
    Column("MEMBERS", "members", is_sum=True),
)
_ROUTE = (
    ("BROKER", "broker"),
    ("READ", "readQueues"),
    ("WRITE", "writeQueues"),
    ("PERM", "perm"),
    ("ADDRESSES", "addresses"),
)
_REPLICAS = (
    ("BROKER", "broker"),
    ("ID", "id"),
    ("ROLE", "role"),
    ("IN-SYNC", "copiesInSync", Kind.NUMBER),
    ("BEHIND-BYTES", "behindBytes", Kind.NUMBER),
    ("BEHIND", "behind", Kind.NUMBER),
)
_STATS = (
    Column("TOPIC", "topic"),
    Column("IN/S", "inPerS", Kind.NUMBER, is_sum=True),
    Column("OUT/S", "outPerS", Kind.NUMBER, is_sum=True),
    Column("MESSAGES", "messages", Kind.NUMBER, is_sum=True),
    Column("BYTES", "bytes", Kind.NUMBER, is_approximate=True),
    Column("LAST-STORED", "lastStored", Kind.TIME),
)


@click.group(cls=Group)
def topic() -> None:
    """Create, list, inspect, change and delete topics."""


@topic.command("list")
@match_option
@click.option(
    "--all", "show_all", is_flag=True, help="Include system, retry and dead-letter topics."
)
@click.option("--long", "is_long", is_flag=True, help="With settings and figures.")
@click.option("--cluster", metavar="NAME", help="Only topics of this cluster's brokers.")
@limit_option
@shell_options()
def list_topics(
    match: str | None,
    show_all: bool,
    is_long: bool,
    cluster: str | None,
    limit: int,
    shell: Shell,
) -> None:
    """List topics.

    \b
    Examples:
      sparrowmq topic list
      sparrowmq topic list --long --match 'order*'
      sparrowmq topic list --all -n 10.0.0.1:9876,10.0.0.2:9876
    """

    async def look(admin: Admin) -> Report:
        found = await topics_of_users(admin, show_all=show_all, cluster=cluster)
        names, total = selected(found, match, limit)
        empty = "there is no such topic" if match or cluster else "there is no topic"
        if not is_long:
            rows: list[list[Value]] = [[name] for name in names]
            return Report([table([("NAME", "name")], rows, total=total, empty=empty)])
        listed = await admin.topic_figures(names)
        long = [_long_row(each) for each in listed]
        return Report([table(_LONG, long, total=total, empty=empty)], errors=listed.errors)

    shell.report(look)


async def topics_of_users(
    admin: Admin, *, show_all: bool = False, cluster: str | None = None
) -> list[str]:
    """Names of topics, without those that brokers and groups create for themselves."""
    names = await admin.topics(cluster=cluster)
    if show_all:
        return names
    own = _own_topics(await admin.cluster_info())
    return [
        name
        for name in names
        if not (
            name in own
            or is_system_topic(name)
            or name.endswith("_REPLY_TOPIC")
            or is_retry_topic(name)
            or is_dlq_topic(name)
        )
    ]


def _own_topics(info: ClusterInfo) -> set[str]:
    """The topics that bear the name of a broker or cluster: each has one."""
    return {*info.cluster_addr_table, *info.broker_addr_table}


def _long_row(each: TopicFigures) -> list[Value]:
    if not each.settings:
        return [each.name, None, None, None, None, None, None]
    return [
        each.name,
        sum(max(one.read_queues, one.write_queues) for one in each.settings),
        sorted({one.permission for one in each.settings}),
        sorted({message_type(one) for one in each.settings}),
        [one.broker for one in each.settings],
        each.messages,
        each.stored_per_s,
    ]


def message_type(settings: TopicSettings) -> str:
    """The message type of a topic; without the attribute, Apache's word for the default."""
    return settings.attributes.get("message.type", "NORMAL")


@topic.command()
@click.argument("name", shell_complete=complete_topics)
@click.option("--queues", "show_queues", is_flag=True, help="Also what each queue holds.")
@shell_options(watch=True)
def show(name: str, show_queues: bool, shell: Shell) -> None:
    """Show a topic's settings on each broker, and who reads it.

    \b
    Examples:
      sparrowmq topic show orders
      sparrowmq topic show orders --queues
    """

    async def look(admin: Admin) -> Report:
        found = await admin.topic(name)
        readers = await admin.topic_readers(name)
        tables = [_settings_table(found)]
        if show_queues:
            silent = {each.broker for each in found.errors}
            route = await admin.route(name) if silent else TopicRoute()
            tables.append(_queue_table(found, _queues_on(name, route, silent)))
        tables.append(reader_table(readers))
        facts: dict[str, Value] = {
            "topic": name,
            "type": sorted({message_type(each) for each in found.settings}),
            "messages": found.messages,
            "inPerS": found.stored_per_s,
            "lastStored": found.last_stored or "",
        }
        known = {each.broker for each in found.errors}
        more = tuple(each for each in readers.errors if each.broker not in known)
        return Report(
            tables,
            errors=(*found.errors, *more),
            facts=facts,
            kinds={"lastStored": Kind.TIME},
            sums=("messages", "inPerS"),
        )

    shell.report(look)


def _settings_table(found: TopicInfo) -> Table:
    rows: list[list[Value]] = [
        [
            each.broker,
            each.read_queues,
            each.write_queues,
            each.permission,
            each.order,
            [f"{name}={value}" for name, value in sorted(each.attributes.items())],
        ]
        for each in found.settings
    ]
    return table(_SETTINGS, rows)


def _queues_on(topic: str, route: TopicRoute, brokers: Collection[str]) -> list[MessageQueue]:
    return [
        MessageQueue(topic, data.broker_name, number)
        for data in route.queue_datas
        if data.broker_name in brokers
        for number in range(max(data.read_queue_nums, data.write_queue_nums))
    ]


def _queue_table(found: TopicInfo, unknown: Iterable[MessageQueue]) -> Table:
    """`unknown` are queues of brokers that did not answer."""
    rows: list[list[Value]] = [
        [
            each.queue.place,
            each.min_offset,
            each.max_offset,
            each.messages,
            each.last_stored or "",
        ]
        for each in found.queues
    ]
    rows += [[each.place, None, None, None, None] for each in sorted(unknown)]
    return table(_QUEUES, rows, key="queues")


def reader_table(readers: Iterable[TopicReader]) -> Table:
    """Groups with their unread messages, and how many members are live."""
    rows: list[list[Value]] = [[each.group, each.lag, len(each.members)] for each in readers]
    return table(_READERS, rows, key="groups", empty="no group reads it")


@topic.command()
@click.argument("name", shell_complete=complete_topics)
@shell_options()
def route(name: str, shell: Shell) -> None:
    """Show which brokers serve a topic, and with how many queues.

    \b
    Example:
      sparrowmq topic route orders
    """

    async def look(admin: Admin) -> Report:
        found = await admin.route(name)
        addresses = {each.broker_name: each.broker_addrs for each in found.broker_datas}
        rows: list[list[Value]] = [
            [
                each.broker_name,
                each.read_queue_nums,
                each.write_queue_nums,
                perm_text(each.perm),
                _address_texts(addresses.get(each.broker_name, {})),
            ]
            for each in sorted(found.queue_datas, key=lambda each: each.broker_name)
        ]
        replicated = {name for name, known in addresses.items() if len(known) > 1}
        if not replicated:
            return Report([table(_ROUTE, rows)])
        listed = await admin.brokers()
        replicas = [each for each in listed if each.name in replicated]
        errors = tuple(each for each in listed.errors if each.broker in replicated)
        return Report([table(_ROUTE, rows), _replica_table(replicas)], errors=errors)

    shell.report(look)


def _address_texts(addresses: dict[int, str]) -> list[str]:
    return [f"{number}:{address}" for number, address in sorted(addresses.items())]


def _replica_table(replicas: Sequence[BrokerInfo]) -> Table:
    """The state of a master's copies, and how far its slaves are. Apache's brokers report
    neither."""
    rows: list[list[Value]] = []
    for each in replicas:
        now = each.runtime
        figures: list[Value] = [None, None, None]
        if now is not None and each.is_master:
            figures = [now.copies_in_sync, "", ""]
        elif now is not None:
            figures = ["", now.behind_bytes, now.behind_s]
        rows.append([each.name, each.broker_id, each.role, *figures])
    return table(_REPLICAS, rows, key="replicas")


@topic.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_topics)
@match_option
@click.option(
    "--sort",
    type=click.Choice(["in", "out", "size"]),
    help="The largest first; that figure is asked of all topics, the others of those printed.",
)
@limit_option
@shell_options(watch=True)
def stats(
    names: tuple[str, ...], match: str | None, sort: Busy | None, limit: int, shell: Shell
) -> None:
    """Show how busy topics are. BYTES is about: messages times the size of those that came lately.

    \b
    Examples:
      sparrowmq topic stats
      sparrowmq topic stats orders payments --watch
      sparrowmq topic stats --sort in --limit 10
    """
    if names and match:
        raise click.UsageError("NAME and --match cannot be combined")

    async def look(admin: Admin) -> Report:
        for name in names:
            await admin.route(name)
        found = list(names) or await topics_of_users(admin)
        chosen, total = selected(found, match, 0 if sort else limit)
        if sort:
            listed = await admin.busiest_topics(chosen, by=sort, most=limit)
        else:
            listed = await admin.topic_figures(chosen, rates=True)
        shown = Table(
            _STATS,
            [_stats_row(each) for each in (listed[:limit] if limit else listed)],
            total=total,
            empty="there is no topic",
        )
        return Report([shown], errors=listed.errors)

    shell.report(look)


def _stats_row(each: TopicFigures) -> list[Value]:
    size: Value = None if each.size_bytes is None else (each.size_bytes, False)
    if each.messages == 0:
        size = (0, True)
    last = each.last_stored or (None if each.messages is None else "")
    return [each.name, each.stored_per_s, each.delivered_per_s, each.messages, size, last]


def commands() -> list[click.Command]:
    """For the program."""
    for each in topic_changes.commands():
        topic.add_command(each)
    return [topic]
