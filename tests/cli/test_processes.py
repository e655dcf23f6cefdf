"""The commands as people run them."""

import json
import socket
from pathlib import Path

import pytest

from tests.cli.servers import sparrowmq, stop, up


def test_up_serves_topics_messages_and_consumers_and_keeps_them_over_a_restart(
    tmp_path: Path,
) -> None:
    with up(tmp_path / "data") as server:
        at = ("--name-servers", server.name_server)
        created = sparrowmq("topic", "create", "orders", "--queues", "3", *at)
        assert created.stdout == "topic orders: 3 queues on each of broker-a\n", created.stderr
        sent = sparrowmq("send", "orders", "hello", "--tag", "created", "--key", "o-1", *at)
        assert sent.stdout.startswith("SEND_OK "), sent.stderr
        assert stop(server)[0] == 0
    with up(tmp_path / "data") as server:
        at = ("--name-servers", server.name_server)
        assert sparrowmq("topic", "list", *at).stdout == "orders\n"
        assert (
            "broker-a                 3     3  RW-"
            in sparrowmq("topic", "route", "orders", *at).stdout
        )
        got = sparrowmq("consume", "orders", "--group", "g", "--count", "1", *at)
        assert got.stdout.endswith("[created] o-1: hello\n"), got.stderr
        assert sparrowmq("topic", "delete", "orders", "--yes", *at).returncode == 0
        gone = sparrowmq("topic", "route", "orders", *at)
        assert gone.returncode == 1
        assert "sparrowmq topic create orders" in gone.stderr


def test_what_a_topic_command_cannot_do_is_said_in_a_line_and_the_exit_code(
    tmp_path: Path,
) -> None:
    with up(tmp_path / "data") as server:
        at = ("--name-servers", server.name_server)
        missing = sparrowmq("topic", "delete", "orders", "--yes", *at)
        assert (missing.returncode, missing.stdout) == (1, "")
        assert "topic orders does not exist" in missing.stderr
        wide = sparrowmq("topic", "create", "orders", "--queues", "5000", *at)
        assert wide.returncode == 1
        assert "5000 read queues, allowed are 0 to 4096" in wide.stderr
        assert "run it again" not in wide.stderr  # it would be refused again
        none = sparrowmq("topic", "create", "orders", "--queues", "0", *at)
        assert none.returncode == 2
        assert sparrowmq("topic", "list", *at).stdout == ""
        for queues in ("8", "16"):
            assert sparrowmq("topic", "create", "orders", "--queues", queues, *at).returncode == 0
            assert f" {queues} " in sparrowmq("topic", "route", "orders", *at).stdout


def test_several_brokers_are_processes_that_end_with_their_parent(tmp_path: Path) -> None:
    with up(tmp_path / "data", "--brokers", "2") as server:
        assert "2 brokers (broker-a, broker-b)" in server.ready
        created = sparrowmq("topic", "create", "t", "--name-servers", server.name_server)
        assert created.stdout == "topic t: 8 queues on each of broker-a, broker-b\n", created.stderr
        code, logged = stop(server)
        assert code == 0, logged
    # Their locks are free again, so nobody is left behind
    with up(tmp_path / "data", "--brokers", "2") as server:
        assert "2 brokers" in server.ready


def test_json_logs_are_one_object_a_line(tmp_path: Path) -> None:
    with up(tmp_path / "data", "--json") as server:
        code, logged = stop(server)
    assert code == 0
    lines = [json.loads(line) for line in logged.splitlines()]
    assert {"time", "level", "logger", "message"} <= set(lines[0])
    assert "stopping" in [line["message"] for line in lines]


def test_with_json_the_warnings_before_a_start_and_its_failure_are_lines_of_the_log(
    tmp_path: Path,
) -> None:
    (tmp_path / "broker.conf").write_text("useTLS=true\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = f"--nameserver-port={taken.getsockname()[1]}"
        flags = ("--json", "--config", "broker.conf", "--port=0", port, "--name-servers=a:1")
        refused = sparrowmq("up", *flags, cwd=tmp_path, SPARROWMQ_FLUSHH="sync")
    assert refused.returncode == 1
    lines = [json.loads(line) for line in refused.stderr.splitlines()]
    assert [line["level"] for line in lines] == ["warning", "warning", "warning", "error"]
    for line, says in zip(
        lines, ("FLUSHH", "useTLS", "name-servers", "--nameserver-port"), strict=True
    ):
        assert says in line["message"]


def test_a_second_broker_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with up(tmp_path / "data"):
        second = sparrowmq("broker", "--data", str(tmp_path / "data"), "--port", "0")
        assert second.returncode == 1
        assert "another process uses the store" in second.stderr
        assert "Traceback" not in second.stderr


def test_a_port_in_use_is_named_with_the_remedy(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        refused = sparrowmq("broker", "--data", str(tmp_path), "--port", port)
    assert refused.returncode == 1
    assert "choose a port" in refused.stderr
    assert port in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("up", "--listen", "0.0.0.0"),
        ("broker", "--listen", "192.0.2.1"),
        ("nameserver", "--listen", "::"),
        ("up", "--nameserver-listen", "0.0.0.0"),
    ],
)
def test_an_address_that_others_reach_needs_an_explicit_word(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    refused = sparrowmq(*arguments, cwd=tmp_path)
    assert refused.returncode == 2
    assert "--insecure" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_setting_is_a_usage_error_and_leaves_nothing_behind(tmp_path: Path) -> None:
    refused = sparrowmq("up", "--flush", "maybe", cwd=tmp_path)
    assert refused.returncode == 2
    assert "flag --flush is 'maybe', must be one of async, sync" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_config_show_tells_where_every_value_comes_from(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("[broker]\nport = 7\n")
    shown = sparrowmq("config", "show", "--config", "x.toml", "--ha-port", "8", cwd=tmp_path)
    lines = {line.split()[0]: line for line in shown.stdout.splitlines()}
    assert lines["port"].split(maxsplit=1)[1] == "7  (x.toml line 2: [broker] port)"
    assert lines["ha-port"].split(maxsplit=1)[1] == "8  (flag --ha-port)"
    assert lines["flush"].split(maxsplit=1)[1] == "async  (default)"
    names = sparrowmq("config", "show", "nameserver", cwd=tmp_path)
    assert "nameserver-port" in names.stdout


def test_every_setting_is_explained_by_help() -> None:
    text = sparrowmq("broker", "--help").stdout
    assert "--flush-interval VALUE" in text
    assert "How long an asynchronously flushed message may stay" in " ".join(text.split())


def test_a_cluster_that_is_not_there_is_one_line_that_says_what_to_do() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        at = f"127.0.0.1:{closed.getsockname()[1]}"
        asked = sparrowmq("topic", "list", "--name-servers", at)
    assert asked.returncode == 1
    assert len(asked.stderr.splitlines()) == 1
    assert "sparrowmq up" in asked.stderr
