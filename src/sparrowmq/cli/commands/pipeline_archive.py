"""`sparrowmq pipeline archive …`"""

import json
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

from sparrowmq.cli.command_group import Group
from sparrowmq.cli.commands.pipeline_checks import (
    check_archive,
    check_new_archive,
    check_topics,
    report_no_match,
)
from sparrowmq.cli.commands.pipeline_options import (
    name_server_option,
    show_document,
    spark_options,
)
from sparrowmq.cli.commands.pipeline_session import pipeline_session, shown_progress
from sparrowmq.cli.message_output import body_field, body_line
from sparrowmq.cli.option_types import Duration, Moment, Whole
from sparrowmq.cli.output import Value
from sparrowmq.cli.shell import json_option
from sparrowmq.client.errors import counted
from sparrowmq.clock import utc_text
from sparrowmq.protocol.names import DLQ_PREFIX
from sparrowmq.spark.frames import origin_of
from sparrowmq.spark.jobs.archive import (
    ArchiveJob,
    archive_forever,
    archive_once,
    compact_archive,
    opened_archive,
    read_archive,
)
from sparrowmq.spark.jobs.archive_compact import CompactionRule
from sparrowmq.spark.jobs.archive_query import Question


@click.group(cls=Group, invoke_without_command=True)
@click.option("--topics", help="Topics, separated by commas.")
@click.option("--pattern", help="A regular expression for topics, instead of --topics.")
@click.option("--to", help="The archive: a folder that driver and executors reach by this name.")
@click.option("--once", is_flag=True, help="Archive what is there now, then end.")
@click.option(
    "--interval",
    type=Duration(),
    default="10s",
    show_default=True,
    help="How often to look for messages.",
)
@click.option(
    "--since",
    type=Moment(is_relative=False),
    help="Where a new archive begins. [default: the oldest]",
)
@click.option(
    "--group",
    default="sparrowmq-archive",
    show_default=True,
    help="Consumer group that shows the progress.",
)
@click.option(
    "--batch",
    type=Whole(min=1),
    default=1_000_000,
    show_default=True,
    help="Most messages in one commit.",
)
@click.option(
    "--compact-after",
    type=Whole(min=0),
    default=32,
    show_default=True,
    help="Merge this many small files of a topic and day into one; 0 never does.",
)
@click.option(
    "--allow-data-loss",
    is_flag=True,
    help="Go on although messages were deleted or a queue got shorter.",
)
@json_option
@name_server_option
@spark_options
@click.pass_context
def archive(
    ctx: click.Context,
    topics: str | None,
    pattern: str | None,
    to: str | None,
    once: bool,
    interval: float,
    since: datetime | None,
    group: str,
    batch: int,
    compact_after: int,
    allow_data_loss: bool,
    as_json: bool,
    name_server: str,
    master: str,
    settings: dict[str, str],
) -> None:
    """Archive topics to Parquet, each message once.

    Files are partitioned by topic and date. Run it again however it ended, even by a kill: it
    continues where it stopped.

    \b
    Examples:
      sparrowmq pipeline archive --topics orders --to archive --once
      sparrowmq pipeline archive --pattern "orders-.*" --to hdfs:///archive --master yarn
    """
    if ctx.invoked_subcommand is not None:
        return
    if to is None or (topics is None) == (pattern is None):
        raise click.UsageError("give --to, and --topics or --pattern")
    job = ArchiveJob(
        name_server=name_server,
        to=to,
        topics=tuple(part.strip() for part in (topics or "").split(",") if part.strip()),
        pattern=pattern,
        group=group,
        since_ms=None if since is None else int(since.timestamp() * 1000),
        batch_rows=batch,
        fail_on_data_loss=not allow_data_loss,
        compaction=CompactionRule(least_files=compact_after),
    )
    job.options()  # mistakes are reported before Spark starts
    check_new_archive(to, settings)
    # Without --once it waits for a topic that is away with its broker.
    check_topics(name_server, job.topics if once else ())
    if pattern is not None:
        report_no_match(name_server, pattern)
    never = threading.Event()
    with (
        pipeline_session("archive", master, settings) as spark,
        shown_progress("archive") as on_step,
        opened_archive(spark, job, on_step) as archiver,
    ):
        before = archiver.archive.rows
        if once:
            archive_once(archiver)
        else:
            archive_forever(archiver, lambda: not never.wait(interval))
        found = archiver.archive
    if as_json:
        facts: dict[str, Value] = {"archive": to, "archived": found.rows - before}
        show_document(facts | {"messages": found.rows, "files": len(found.files)})
        return
    click.echo(
        f"{counted(found.rows - before, 'message')} archived now, {found.rows:,} in all,"
        f" in {counted(len(found.files), 'file')}: {to}"
    )


class ArchiveCommand(click.Command):
    """Works on an archive's files only, and says so when it is given a cluster."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments. Raises UsageError."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name not in _OF_CLUSTERS:
                raise
            text = (
                f"archive {self.name} reads the files of the archive and needs no cluster: leave"
                f" out {error.option_name}"
            )
            raise click.UsageError(text, ctx) from error


_OF_CLUSTERS = ("--context", "--name-server", "--name-servers", "-n")


@archive.command(cls=ArchiveCommand)
@click.argument("folder")
@click.option("--topic", help="Only of this topic.")
@click.option("--key", help="With this key.")
@click.option("--id", "msg_id", help="With this message id.")
@click.option("--tag", help="With this tag.")
@click.option("--since", type=Moment(), help="Stored at this time or later.")
@click.option("--until", type=Moment(), help="Stored before this time.")
@click.option("--limit", type=Whole(min=1), default=20, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@spark_options
def query(
    folder: str,
    topic: str | None,
    key: str | None,
    msg_id: str | None,
    tag: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    as_json: bool,
    master: str,
    settings: dict[str, str],
) -> None:
    """Find messages in an archive, oldest first.

    A time range reads only its days.

    \b
    Examples:
      sparrowmq pipeline archive query archive --key o-7
      sparrowmq pipeline archive query archive --topic orders --since 2026-01-01 --limit 3 --json
    """
    check_archive(folder, settings, topic)
    question = Question(topic=topic, key=key, msg_id=msg_id, tag=tag, since=since, until=until)
    with pipeline_session("archive query", master, settings) as spark:
        rows = read_archive(spark, folder, question).limit(limit + 1).collect()
    show_rows(rows, limit, "message", as_json=as_json)


@archive.command(cls=ArchiveCommand)
@click.argument("folder")
@click.option(
    "--keep-removed",
    type=Duration(),
    default="1h",
    show_default=True,
    help="How long old files stay for readers that have begun.",
)
@json_option
@spark_options
def compact(
    folder: str, keep_removed: float, as_json: bool, master: str, settings: dict[str, str]
) -> None:
    """Merge small files into large ones; readers see the same rows.

    \b
    Example:
      sparrowmq pipeline archive compact archive
    """
    check_archive(folder, settings, None)
    rule = CompactionRule(keep_removed_ms=int(keep_removed * 1000))
    with (
        pipeline_session("archive compact", master, settings) as spark,
        shown_progress("compact") as on_step,
    ):
        before, after = compact_archive(spark, folder, rule, on_step)
    if as_json:
        show_document({"archive": folder, "filesWas": before, "filesNow": after})
        return
    if before == after:
        click.echo(f"nothing to merge: {counted(before, 'file')}")
        return
    click.echo(f"{counted(before, 'file')} became {after:,}")


def show_rows(rows: Sequence[Any], limit: int, what: str, *, as_json: bool) -> None:
    """Print up to `limit` messages and their count; one row past the limit means there are more."""
    for row in rows[:limit]:
        click.echo(shown(row, as_json=as_json))
    count = min(len(rows), limit)
    more = "; there are more, --limit shows them" if len(rows) > limit else ""
    click.echo(f"{counted(count, what)}{more}", err=True)


def shown(row: Any, *, as_json: bool) -> str:
    """A message from a DataFrame on one line; a dead letter with the topic it came from."""
    body = bytes(row["body"])
    if as_json:
        value = row.asDict()
        del value["body"]
        return json.dumps({**value, **body_field(body)}, default=_text, ensure_ascii=False)
    tags = f" [{row['tags']}]" if row["tags"] else ""
    keys = f" {' '.join(row['keys'])}" if row["keys"] else ""
    place = f"{row['topic']}/{row['brokerName']}/{row['queueId']}/{row['queueOffset']}"
    if row["topic"].startswith(DLQ_PREFIX) and (origin := origin_of(row["properties"])):
        place += f" from {origin}"
    # PySpark returns times in this machine's zone.
    at = row["storeTimestamp"].astimezone(UTC)
    return f"{at:%Y-%m-%d %H:%M:%S} {place}{tags}{keys}: {body_line(body)}"


def _text(value: object) -> str:
    return utc_text(value) if isinstance(value, datetime) else str(value)


def commands() -> list[click.Command]:
    """For the group `sparrowmq pipeline`."""
    return [archive]
