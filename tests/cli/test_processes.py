"""Servers as processes: what they serve, how they log, stop, and fail to start."""

import json
import socket
from pathlib import Path

import pytest

from tests.cli.in_process import run
from tests.cli.servers import Up, sparrowmq, stop, up


def test_up_serves_topics_messages_and_consumers_and_keeps_them_over_a_restart(
    tmp_path: Path,
) -> None:
    with up(tmp_path / "data") as server:
        at = ("--name-servers", server.name_server)
        created = run("topic", "create", "orders", "--queues", "3", *at)
        assert created.stdout == "BROKER\tQUEUES\nbroker-a\t3\n", created.stderr
        sent = run("send", "orders", "hello", "--tag", "created", "--key", "o-1", *at)
        assert sent.stdout.startswith("SEND_OK "), sent.stderr
        assert stop(server)[0] == 0
    with up(tmp_path / "data") as server:
        at = ("--name-servers", server.name_server)
        assert run("topic", "list", *at).stdout == "NAME\norders\n"
        assert "broker-a\t3\t3\tRW-\t" in run("topic", "route", "orders", *at).stdout
        got = run("consume", "orders", "--group", "g", "--count", "1", *at)
        assert got.stdout.endswith("[created] o-1: hello\n"), got.stderr
        assert run("topic", "delete", "orders", "--yes", *at).returncode == 0
        gone = run("topic", "route", "orders", *at)
        assert gone.returncode == 1
        assert "sparrowmq topic create orders" in gone.stderr


@pytest.mark.slow
def test_several_brokers_are_processes_that_end_with_their_parent(tmp_path: Path) -> None:
    with up(tmp_path / "data", "--brokers", "2") as server:
        assert "2 brokers (broker-a, broker-b)" in server.ready
        created = run("topic", "create", "t", "--name-servers", server.name_server)
        assert created.stdout == "BROKER\tQUEUES\nbroker-a\t8\nbroker-b\t8\n", created.stderr
        shown = run("topic", "show", "t", "--name-servers", server.name_server)
        settings = [line.split("\t")[:3] for line in shown.stdout.splitlines()[:3]]
        brokers = [["broker-a", "8", "8"], ["broker-b", "8", "8"]]
        assert settings == [["BROKER", "READ", "WRITE"], *brokers], shown.stderr
        code, logged = stop(server)
        assert code == 0, logged
    # Their locks are free again, so no process is left
    with up(tmp_path / "data", "--brokers", "2") as server:
        assert "2 brokers" in server.ready


@pytest.mark.slow
def test_changing_the_number_of_brokers_serves_or_names_existing_stores(tmp_path: Path) -> None:
    def send(server: Up, body: str) -> None:
        at = ("--name-servers", server.name_server)
        sent = run("send", "orders", body, *at)
        assert " broker-a/" in sent.stdout, sent.stderr

    def read(server: Up, group: str, count: int) -> set[str]:
        at = ("--name-servers", server.name_server)
        wanted = ("--from", "first", "--count", str(count), "--format", "body")
        return set(run("consume", "orders", "--group", group, *wanted, *at).stdout.split())

    with up(tmp_path / "data") as server:
        send(server, "alone")
        stop(server)
    with up(tmp_path / "data", "--brokers", "2") as server:
        assert read(server, "pair", 1) == {"alone"}
        stop(server)
    with up(tmp_path / "data") as server:
        assert read(server, "single", 1) == {"alone"}
        _, logged = stop(server)
    assert f"{tmp_path}/data/broker-b has messages of another broker" in logged
    assert "sparrowmq up --brokers 2" in logged


@pytest.mark.slow
def test_json_logs_are_one_object_a_line(tmp_path: Path) -> None:
    with up(tmp_path / "data", "--json") as server:
        code, logged = stop(server)
    assert code == 0
    lines = [json.loads(line) for line in logged.splitlines()]
    assert {"time", "level", "logger", "message"} <= set(lines[0])
    assert any(line["message"].startswith("stopping: SIGTERM") for line in lines)


@pytest.mark.slow
def test_with_json_the_warnings_before_a_start_and_its_failure_are_lines_of_the_log(
    tmp_path: Path,
) -> None:
    (tmp_path / "broker.conf").write_text("noSuchKey=true\n")
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
        lines, ("FLUSHH", "noSuchKey", "name-servers", "--nameserver-port"), strict=True
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


def test_a_broker_whose_name_is_taken_exits_with_the_reason(tmp_path: Path) -> None:
    with up(tmp_path / "first") as server:
        at = ("--name-servers", server.name_server)
        second = sparrowmq("broker", *at, "--data", str(tmp_path / "second"), "--port", "0")
        assert (second.returncode, second.stdout) == (1, "")
        last = second.stderr.splitlines()[-1]
        assert last.startswith(f"sparrowmq: no client would find this broker: name server {at[1]}")
        assert "give 127.0.0.1:" in last
        assert "Traceback" not in second.stderr
