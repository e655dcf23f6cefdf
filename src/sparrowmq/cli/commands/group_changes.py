"""`sparrowmq group create | update | delete | pause | resume`"""

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.errors import AdminError, AlreadyExists, NotFound
from sparrowmq.admin.groups import GroupInfo
from sparrowmq.admin.values import SettingChange
from sparrowmq.cli.completion import complete_groups
from sparrowmq.cli.option_types import Whole
from sparrowmq.cli.output import Report, Table, Value, table
from sparrowmq.cli.shell import (
    Shell,
    brokers_option,
    check_where,
    cluster_option,
    dry_run_option,
    shell_options,
    topic_option,
    yes_option,
)
from sparrowmq.client.errors import counted

_SWITCH = click.Choice(["on", "off"])
_NAMES = {
    "may_consume": "consume",
    "may_broadcast": "broadcast",
    "orderly": "order",
    "retries": "retries",
    "retry_queues": "retry queues",
}


def _setting_options(command: click.decorators.FC) -> click.decorators.FC:
    options = [
        click.option(
            "--retries",
            type=Whole(min=-1),
            metavar="N",
            help="Deliveries after the first before a message is a dead letter; a consumer's own"
            " limit counts instead.",
        ),
        click.option("--broadcast", type=_SWITCH, help="Whether members may broadcast."),
        click.option("--consume", type=_SWITCH, help="Whether members get messages."),
        click.option("--order", type=_SWITCH, help="Whether messages are consumed in order."),
        click.option("--retry-queues", type=Whole(min=1), metavar="N", help="Of its retry topic."),
        click.option(
            "--attribute",
            "attributes",
            multiple=True,
            metavar="K=V",
            help="May be repeated; -K removes one in an update.",
        ),
        brokers_option,
        cluster_option,
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _given(
    retries: int | None,
    broadcast: str | None,
    consume: str | None,
    order: str | None,
    retry_queues: int | None,
) -> dict[str, int | bool]:
    found: dict[str, int | bool] = {}
    for name, text in (
        ("may_broadcast", broadcast),
        ("may_consume", consume),
        ("orderly", order),
    ):
        if text is not None:
            found[name] = text == "on"
    if retries is not None:
        found["retries"] = retries
    if retry_queues is not None:
        found["retry_queues"] = retry_queues
    return found


def _attributes(texts: tuple[str, ...]) -> dict[str, str | None] | None:
    found: dict[str, str | None] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if text.startswith("-") and not equals and len(text) > 1:
            found[text[1:]] = None
        elif equals and name:
            found[name] = value
        else:
            raise click.UsageError(f"--attribute {text!r} is not K=V, nor -K to remove one")
    return found or None


@click.command("create")
@click.argument("name")
@_setting_options
@dry_run_option
@shell_options()
def create(
    name: str,
    retries: int | None,
    broadcast: str | None,
    consume: str | None,
    order: str | None,
    retry_queues: int | None,
    attributes: tuple[str, ...],
    brokers: tuple[str, ...],
    cluster: str | None,
    dry_run: bool,
    shell: Shell,
) -> None:
    """Create a group. Most clusters create one when its first member comes.

    \b
    Examples:
      sparrowmq group create billing
      sparrowmq group create billing --retries 3 --broker broker-a
    """
    check_where(brokers, cluster)
    given = _given(retries, broadcast, consume, order, retry_queues)
    wanted = _attributes(attributes)

    async def work(admin: Admin) -> tuple[list[str], set[str]]:
        try:
            before = {each.broker for each in (await admin.group(name)).settings}
        except NotFound:
            before = set()
        try:
            done = await admin.create_group(
                name,
                brokers=brokers,
                cluster=cluster,
                attributes=wanted,
                replace=False,
                dry_run=dry_run,
                **given,  # type: ignore[arg-type]  # by name, checked by its options
            )
        except AlreadyExists as error:
            raise AdminError(
                f"group {name} exists with other settings ({'; '.join(error.differences)}); change"
                f" it with: sparrowmq group update {name}"
            ) from error
        return done, before

    done, before = shell.change(work, dry_run=dry_run)
    result = "would be created" if dry_run else "created"
    rows: list[list[Value]] = [
        [broker, "there already" if broker in before else result] for broker in done
    ]
    shell.show(Report([table(_RESULT, rows)]))
    if dry_run:
        shell.dry()
        return
    if before.issuperset(done):
        shell.say(f"group {name} is there already; nothing was changed")
        return
    shell.done(f"group {name} created")


_RESULT = (("BROKER", "broker"), ("RESULT", "result"))


def _results(brokers: list[str], result: str) -> Table:
    return table(_RESULT, [[broker, result] for broker in brokers])


@click.command("update")
@click.argument("name", shell_complete=complete_groups)
@_setting_options
@dry_run_option
@shell_options()
def update(
    name: str,
    retries: int | None,
    broadcast: str | None,
    consume: str | None,
    order: str | None,
    retry_queues: int | None,
    attributes: tuple[str, ...],
    brokers: tuple[str, ...],
    cluster: str | None,
    dry_run: bool,
    shell: Shell,
) -> None:
    """Change the given settings of a group; others stay.

    \b
    Examples:
      sparrowmq group update billing --retries 3 --dry-run
      sparrowmq group update billing --consume off --broker broker-a
    """
    check_where(brokers, cluster)
    given = _given(retries, broadcast, consume, order, retry_queues)
    wanted = _attributes(attributes)
    if not given and wanted is None:
        raise click.UsageError("nothing to change; give --retries, --consume or another setting")

    async def work(admin: Admin) -> list[SettingChange]:
        return await admin.update_group(
            name,
            brokers=brokers,
            cluster=cluster,
            attributes=wanted,
            dry_run=dry_run,
            **given,  # type: ignore[arg-type]  # by name, checked by its options
        )

    changes = shell.change(work, dry_run=dry_run)
    rows: list[list[Value]] = [
        [
            _NAMES.get(each.setting, each.setting),
            each.broker,
            _shown(each.before),
            _shown(each.after),
        ]
        for each in changes
    ]
    columns = [("FIELD", "field"), ("BROKER", "broker"), ("WAS", "was"), ("NOW", "now")]
    shell.show(Report([table(columns, rows, empty="nothing differs")]))
    if dry_run:
        shell.dry()
    elif changes:
        shell.done(f"group {name} changed")


def _shown(value: Value) -> Value:
    return "" if value is None else value


@click.command("delete")
@click.argument("name", shell_complete=complete_groups)
@click.option("--keep-offsets", is_flag=True, help="Keep its progress, for a group of this name.")
@dry_run_option
@yes_option
@shell_options()
def delete(name: str, keep_offsets: bool, dry_run: bool, yes: bool, shell: Shell) -> None:
    """Delete a group, which must be offline, and its progress.

    Its retry and dead-letter topics stay.

    \b
    Example:
      sparrowmq group delete billing
    """

    async def look(admin: Admin) -> tuple[list[str], int]:
        found = await admin.group(name)
        if found.members:
            names = ", ".join(each.client_id for each in found.members[:3])
            live = counted(len(found.members), "live member")
            raise AdminError(
                f"group {name} has {live} ({names}); stop them first, or their brokers create it"
                " again"
            )
        # Of brokers without its settings too: they may have progress, as of a clone
        asked = await admin.delete_group(name, keep_offsets=keep_offsets, dry_run=True)
        return asked, len(found.topics)

    brokers, topics = shell.ask(look)
    lost = (
        "its progress stays" if keep_offsets else f"with its progress in {counted(topics, 'topic')}"
    )
    what = f"group {name} would be deleted on {', '.join(brokers)}, {lost}"

    async def work(admin: Admin) -> list[str]:
        return await admin.delete_group(name, keep_offsets=keep_offsets, dry_run=dry_run)

    if dry_run:
        shell.show(Report([_results(shell.ask(work), "would be deleted")], notes=[what]))
        shell.dry()
        return
    shell.confirm(what, name, yes=yes)
    shell.show(Report([_results(shell.change(work), "deleted")]))
    shell.done(f"group {name} deleted")


# ---- pause


_PAUSING = {True: "paused", False: "resumed"}


def _is_so_already(found: GroupInfo, topic: str | None, *, paused: bool) -> bool:
    """Whether it is certain that nothing has to be changed. Brokers say where a group is paused for
    topics in which it has progress."""
    if found.errors or not found.settings or (topic is not None and topic not in found.topics):
        return False
    if topic is None:
        return all(each.may_consume is not paused for each in found.settings)
    return all(
        each.paused_topics is not None and (topic in each.paused_topics) is paused
        for each in found.settings
    )


def _pausing(
    name: str, topic: str | None, shell: Shell, note: str, *, paused: bool, dry_run: bool
) -> None:
    where = f" in topic {topic}" if topic else ""

    async def work(admin: Admin) -> tuple[list[str], GroupInfo | None]:
        change = admin.pause_group if paused else admin.resume_group
        having = await change(name, topic=topic, dry_run=True)
        found = await admin.group(name)
        if _is_so_already(found, topic, paused=paused):
            return having, found
        return having if dry_run else await change(name, topic=topic), None

    (done, unchanged), result = shell.change(work, dry_run=dry_run), _PAUSING[paused]
    if unchanged is not None:
        state = "paused already" if paused else "not paused"
        elsewhere = ", ".join(map(str, unchanged.pauses))
        but = f"; it is {elsewhere}" if elsewhere and not paused else ""
        shell.show(Report([_results(done, state)]))
        if dry_run:
            shell.dry()
            return
        shell.say(f"group {name} is {state}{where}{but}; nothing was changed")
        return
    shell.show(Report([_results(done, f"would be {result}" if dry_run else result)]))
    if dry_run:
        shell.dry()
        return
    shell.done(f"group {name} {result}{where}")
    shell.say(note)


@click.command("pause")
@click.argument("name", shell_complete=complete_groups)
@topic_option(help="Only in this topic (brokers from 5.0 on).")
@dry_run_option
@shell_options()
def pause(name: str, topic: str | None, dry_run: bool, shell: Shell) -> None:
    """Stop delivering messages to a group until it is resumed.

    \b
    Examples:
      sparrowmq group pause billing
      sparrowmq group pause billing --topic orders
    """
    note = (
        "members still handle what they have fetched, and ask again, Java's every 3 s. Resume it"
        f" with: sparrowmq group resume {name}{f' --topic {topic}' if topic else ''}"
    )
    _pausing(name, topic, shell, note, paused=True, dry_run=dry_run)


@click.command("resume")
@click.argument("name", shell_complete=complete_groups)
@topic_option(help="Only in this topic (brokers from 5.0 on).")
@dry_run_option
@shell_options()
def resume(name: str, topic: str | None, dry_run: bool, shell: Shell) -> None:
    """Deliver messages to a paused group again.

    \b
    Example:
      sparrowmq group resume billing
    """
    note = "members get messages when they ask next: Java's within 3 s"
    _pausing(name, topic, shell, note, paused=False, dry_run=dry_run)


def commands() -> list[click.Command]:
    """For `sparrowmq group`."""
    return [create, update, delete, pause, resume]
