"""`sparrowmq rebalance explain | simulate`: who owns what and why, and what a change would cost."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.rebalance import MemberMove, MemberShare, OwnedQueue, RebalanceInfo, with_rate
from sparrowmq.admin.rebalance_simulation import (
    RebalanceEvent,
    RebalanceSimulation,
    SimulatedGroup,
    SimulatedStep,
    described_group,
    read_event,
    simulate,
)
from sparrowmq.admin.values import BrokerFailure
from sparrowmq.cli.command_group import Group as CommandGroup
from sparrowmq.cli.completion import complete_groups, complete_topics
from sparrowmq.cli.option_types import Decimal, Wait, Whole
from sparrowmq.cli.output import Columns, Kind, Report, Table, Value, table
from sparrowmq.cli.shell import Shell, limit_option, shell_options
from sparrowmq.client.errors import counted
from sparrowmq.client.strategies import NAMED
from sparrowmq.disk.atomic_file import replace_path

_INFERRED = " ?"
"""Marks a text that is inferred, because the member does not report it."""


@click.group("rebalance", cls=CommandGroup)
def app() -> None:
    """Explain who owns which queue, or simulate a change of a group."""


def commands() -> list[click.Command]:
    """For the program."""
    return [app]


# ---- explain


@app.command("explain")
@click.argument("group", shell_complete=complete_groups)
@click.option(
    "--topic",
    help="Only this topic; else all that members subscribe to.",
    shell_complete=complete_topics,
)
@limit_option
@shell_options(watch=True)
def explain(group: str, topic: str | None, limit: int, shell: Shell) -> None:
    """Show who owns which queue of a group, since when and why.

    Members of SparrowMQ's client report it. For Java and Go members the owner is read and the
    reason inferred: it ends with a question mark. Recent moves are listed as well.

    \b
    Examples:
      sparrowmq rebalance explain billing
      sparrowmq rebalance explain billing --topic orders --watch
    """

    async def look(admin: Admin) -> Report:
        return _explained(await admin.rebalance(group, topic), limit)

    shell.report(look)


def _explained(info: RebalanceInfo, limit: int) -> Report:
    most = limit or None
    owned = table(
        [
            ("TOPIC", "topic"),
            ("QUEUE", "queue"),
            ("OWNER", "owner"),
            ("SINCE", "since", Kind.TIME),
            ("WHY", "why"),
        ],
        [_owned_row(each) for each in info.queues[:most]],
        total=len(info.queues),
        empty="no queue: the group has no live members, or their topics have none",
    )
    members = table(
        [
            ("MEMBER", "clientId"),
            ("LANGUAGE", "language"),
            ("QUEUES", "queues", Kind.NUMBER),
            ("STRATEGY", "strategy"),
        ],
        [_member_row(each) for each in info.members[:most]],
        key="members",
        title="members",
        total=len(info.members),
        empty="no live members",
    )
    moves = table(
        [
            ("TIME", "at", Kind.TIME),
            ("MEMBER", "member"),
            ("ACTION", "action"),
            ("TOPIC", "topic"),
            ("QUEUE", "queue"),
            ("WHY", "why"),
        ],
        [_move_row(each) for each in info.moves[:most]],
        key="moves",
        title="last moves, the newest first",
        total=len(info.moves),
        empty="no member reports a move",
    )
    silent = [
        BrokerFailure(client_id, "", f"the member did not answer: {why}")
        for client_id, why in info.silent.items()
    ]
    return Report([owned, members, moves], (*info.errors, *silent), notes=tuple(_warnings(info)))


def _owned_row(each: OwnedQueue) -> tuple[Value, ...]:
    why = each.why + _INFERRED * each.is_inferred
    owner = each.owner if each.owner is not None else ""
    since: Value = each.since if each.owner is not None else ""
    return each.queue.topic, each.queue.place, owner, since, why


def _member_row(each: MemberShare) -> tuple[Value, ...]:
    strategy = each.strategy
    if strategy is not None and each.is_inferred:
        strategy += _INFERRED
    return each.client_id, each.language, each.queues, strategy


def _move_row(each: MemberMove) -> tuple[Value, ...]:
    queue = "" if each.queue is None else each.queue.place
    return each.at, each.member, each.action, each.topic, queue, each.why


def _warnings(info: RebalanceInfo) -> list[str]:
    found = []
    if len(info.strategies) > 1:
        names = ", ".join(sorted(info.strategies))
        found.append(f"members use different strategies ({names}): give all the same one")
    for each in info.members:
        for topic, why in each.failures.items():
            found.append(f"{each.client_id}: nothing changes in {topic}: {why}")
    if info.members and len(info.members) > len(info.queues) > 0:
        found.append(
            f"{len(info.members)} members share {counted(len(info.queues), 'queue')}: the others"
            " have none"
        )
    return found


# ---- simulate


@app.command("simulate")
@click.argument("group", required=False, shell_complete=complete_groups)
@click.option("--topic", help="Of a live group: only this topic.", shell_complete=complete_topics)
@click.option("--queues", type=Whole(1, 4096), help="Described: queues of each broker.")
@click.option("--members", type=Whole(1, 1000), help="Described: number of members.")
@click.option(
    "--broker", "brokers", multiple=True, metavar="NAME", help="Described: brokers; one by default."
)
@click.option(
    "--language",
    type=click.Choice(["python", "java"]),
    help="Described: the client of the members. Java's neither lock nor wait.",
)
@click.option(
    "--event",
    "events",
    multiple=True,
    metavar="EVENT",
    help="join, leave, kill, vanish (also with =MEMBER), queues=N, broker=NAME; in the order in"
    " which they are given.  [default: join]",
)
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    type=click.Choice(list(NAMED)),
    help="Only these. [default: all that need no further settings]",
)
@click.option("--rate", "per_s", type=Decimal(min=0), help="Messages per second, in total.")
@click.option(
    "--handler", "handler_s", type=Wait(), metavar="DURATION", help="How long a handler takes."
)
@click.option("--moves", "with_moves", is_flag=True, help="List every queue that moves.")
@click.option(
    "--svg", type=click.Path(path_type=Path, dir_okay=False), help="Draw it into this file."
)
@shell_options()
def simulate_group(
    group: str | None,
    topic: str | None,
    queues: int | None,
    members: int | None,
    brokers: tuple[str, ...],
    language: str | None,
    events: tuple[str, ...],
    strategies: tuple[str, ...],
    per_s: float | None,
    handler_s: float | None,
    with_moves: bool,
    svg: Path | None,
    shell: Shell,
) -> None:
    """Show what joins, kills or new queues would do to a group.

    Nothing is changed.

    Shares, plans and times are the client's own. A live group is named; another is described by
    --queues and --members. Without --event, one more member joins.

    \b
    Examples:
      sparrowmq rebalance simulate billing --event join
      sparrowmq rebalance simulate --queues 16 --members 3 --event join --event kill --svg out.svg
    """
    described = {
        "--queues": queues,
        "--members": members,
        "--broker": brokers or None,
        "--language": language,
    }
    _check_choice(group, topic, described)
    try:
        wanted = [read_event(text) for text in events or ("join",)]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--event") from error
    if group is not None:
        name = group
        before = shell.ask(lambda admin: admin.simulated_group(name, topic))
        title = f"group {group}: {_size(before)}"
    else:
        before = described_group(
            queues or 0, members or 0, brokers=brokers or ("a",), java=language == "java"
        )
        title = _size(before)
    before = with_rate(before, per_s, handler_s)
    found = _simulated(before, wanted, strategies)
    if svg is not None:
        _draw(found, title, svg)
    shell.show(_report(found, before, with_moves=with_moves))
    if not events:
        shell.say("simulated: one more member joins; --event chooses something else")
    if svg is not None:
        shell.say(f"drawn: {svg}")


def _size(group: SimulatedGroup) -> str:
    return f"{counted(len(group.queues), 'queue')}, {counted(len(group.members), 'member')}"


def _check_choice(group: str | None, topic: str | None, described: Mapping[str, object]) -> None:
    given = [name for name, value in described.items() if value is not None]
    if group is not None and given:
        raise click.UsageError(
            f"{', '.join(given)} describe a group, and {group} is a live one: give either"
        )
    if group is None and topic is not None:
        raise click.UsageError("--topic is for a live group: name it")
    if group is None and not {"--queues", "--members"} <= set(given):
        raise click.UsageError(
            "name a live group, or describe one with --queues and --members, such as"
            " --queues 16 --members 3"
        )


def _simulated(
    before: SimulatedGroup, events: Sequence[RebalanceEvent], strategies: Sequence[str]
) -> list[RebalanceSimulation]:
    try:
        return simulate(before, events, strategies)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _draw(found: Sequence[RebalanceSimulation], title: str, path: Path) -> None:
    from sparrowmq.admin.rebalance_picture import draw

    # In a folder of the user's: the draft must have no name that is used by another program.
    replace_path(path, draw(found, title).encode(), draft_suffix=".sparrowmq-draft")


_FIGURES: Columns = [
    ("MOVES", "moves"),
    ("SKEW", "skew"),
    ("PAUSE", "pause", Kind.DURATION),
    ("AT MOST", "longestPause", Kind.DURATION),
    ("REPEATED", "repeated"),
    ("SPIKE", "spike"),
]


def _report(
    found: Sequence[RebalanceSimulation], before: SimulatedGroup, *, with_moves: bool
) -> Report:
    facts: dict[str, Value] = {
        "queues": len(before.queues),
        "members": len(before.members),
        "messagesPerSecond": before.per_s,
        "handler": timedelta(seconds=before.handler_s),
    }
    rows = [(each.strategy + " (in use)" * each.is_in_use, *_figures(each)) for each in found]
    tables = [table([("STRATEGY", "strategy"), *_FIGURES], rows)]
    if len(found[0].steps) > 1:
        tables.append(_by_event(found))
    if with_moves:
        tables.append(_moves(found))
    return Report(tables, facts=facts, kinds={"handler": Kind.DURATION})


def _figures(each: RebalanceSimulation | SimulatedStep) -> tuple[Value, ...]:
    moves = (
        each.moves
        if isinstance(each, RebalanceSimulation)
        else sum(move.giver is not None for move in each.moves)
    )
    return (
        moves,
        each.skew,
        timedelta(seconds=each.pause_s),
        timedelta(seconds=each.longest_s),
        each.repeated,
        each.spike,
    )


def _by_event(found: Sequence[RebalanceSimulation]) -> Table:
    rows = [
        (str(step.event), each.strategy, *_figures(step))
        for number in range(len(found[0].steps))
        for each in found
        for step in [each.steps[number]]
    ]
    columns: Columns = [("EVENT", "event"), ("STRATEGY", "strategy"), *_FIGURES]
    return table(columns, rows, key="events", title="by event")


def _moves(found: Sequence[RebalanceSimulation]) -> Table:
    rows = [
        (
            each.strategy,
            str(step.event),
            move.queue.topic,
            move.queue.place,
            move.giver or "",
            move.taker or "",
            timedelta(seconds=move.pause_s),
            move.repeated,
            move.why,
        )
        for each in found
        for step in each.steps
        for move in step.moves
    ]
    columns: Columns = [
        ("STRATEGY", "strategy"),
        ("EVENT", "event"),
        ("TOPIC", "topic"),
        ("QUEUE", "queue"),
        ("FROM", "from"),
        ("TO", "to"),
        ("PAUSE", "pause", Kind.DURATION),
        ("REPEATED", "repeated"),
        ("WHY", "why"),
    ]
    return table(columns, rows, key="queueMoves", title="moves")
