"""`sparrowmq client …`: who is connected."""

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.clients import ClientRole
from sparrowmq.cli.command_group import Group
from sparrowmq.cli.completion import complete_groups, complete_topics
from sparrowmq.cli.output import Kind, Report, Table, table
from sparrowmq.cli.shell import Shell, limit_option, shell_options

_COLUMNS = (
    ("CLIENT", "client"),
    ("ADDRESS", "address"),
    ("LANGUAGE", "language"),
    ("VERSION", "version"),
    ("GROUPS", "groups"),
    ("ROLE", "role"),
    ("SINCE", "since", Kind.TIME),
)


@click.group(cls=Group)
def client() -> None:
    """Show the producers and consumers that are connected."""


@client.command("list")
@click.option(
    "--group", metavar="GROUP", help="Only clients in this group.", shell_complete=complete_groups
)
@click.option(
    "--topic",
    metavar="TOPIC",
    help="Only consumers of this topic.",
    shell_complete=complete_topics,
)
@click.option("--producers", is_flag=True, help="Only producers.")
@click.option("--language", metavar="NAME", help="Only of this language, such as java or python.")
@limit_option
@shell_options()
def list_clients(
    group: str | None,
    topic: str | None,
    producers: bool,
    language: str | None,
    limit: int,
    shell: Shell,
) -> None:
    """List the clients that are connected.

    A client that sends and consumes is listed twice. Producers do not say since when they run, and
    brokers do not know which topics they send to.

    \b
    Examples:
      sparrowmq client list
      sparrowmq client list --group billing
      sparrowmq client list --producers --language java
    """
    if producers and topic:
        raise click.UsageError(
            "--producers and --topic cannot be combined: brokers do not know who sends to a topic"
        )

    async def look(admin: Admin) -> Report:
        role = ClientRole.PRODUCER if producers else None
        listed = await admin.clients(role=role, group=group, topic=topic)
        found = [
            each for each in listed if language is None or each.language.lower() == language.lower()
        ]
        rows = await admin.with_start_times(found[:limit] if limit else found)
        shown: Table = table(
            _COLUMNS,
            [
                [
                    each.client_id,
                    each.address,
                    each.language,
                    each.version,
                    each.groups,
                    each.role,
                    "" if each.role is ClientRole.PRODUCER else each.since,
                ]
                for each in rows
            ],
            total=len(found),
            empty="no such client is connected",
        )
        return Report([shown], errors=listed.errors)

    shell.report(look)


def commands() -> list[click.Command]:
    """For the program."""
    return [client]
