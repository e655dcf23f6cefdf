"""Masters and slaves as processes: those that have to start again do, and keep their ports."""

import json
import secrets
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sparrowmq import FlowLimits, Message, MessageExt, SendFailed
from sparrowmq.blocking import Producer, PushConsumer
from sparrowmq.testing.held_port import HeldPort
from tests.cli.in_process import run
from tests.cli.servers import broker, logged_until, stop, up
from tests.patience import PATIENCE_S

SYNC = ("--replication", "sync")
SMALL = ("--store-log-file-size", "64KiB")


def send(name_server: str, body: str) -> str:
    """The status of a send."""
    ran = run("send", "orders", body, "--name-servers", name_server)
    return ran.stdout.partition(" ")[0] or ran.stderr


def test_a_slave_that_was_away_for_too_long_starts_again_in_its_process(tmp_path: Path) -> None:
    master, slave = tmp_path / "master", tmp_path / "slave"
    with up(master, *SYNC, *SMALL) as server:
        at = ("--name-servers", server.name_server)
        with broker(slave, "--broker-id", "1", *at, *SMALL) as follower:
            logged_until(follower, "following")
            assert send(server.name_server, "on both") == "SEND_OK"
        for _ in range(3):  # what cannot be compressed fills the first file
            body = "b" + secrets.token_urlsafe(40_000)  # which may begin with a dash
            assert send(server.name_server, body) == "SLAVE_NOT_AVAILABLE"
        assert stop(server)[0] == 0
    (master / "commitlog" / f"{0:020}").unlink()
    with up(master, *SYNC, *SMALL) as server:
        at = ("--name-servers", server.name_server)
        with broker(slave, "--broker-id", "1", *at, *SMALL) as follower:
            lines = logged_until(follower, "from log offset 65536")
            assert send(server.name_server, "on both again") == "SEND_OK"
    assert len([line for line in lines if "starting again with an empty log" in line]) == 1
    assert (slave / "aside-1" / "commitlog" / f"{0:020}").exists()


def test_a_slave_whose_log_was_damaged_gets_the_bytes_from_its_master(tmp_path: Path) -> None:
    master, slave = tmp_path / "master", tmp_path / "slave"
    name = Path("commitlog") / f"{0:020}"
    with up(master, *SYNC, *SMALL) as server:
        as_slave = ("--broker-id", "1", "--name-servers", server.name_server, *SMALL)
        with broker(slave, *as_slave) as follower:
            logged_until(follower, "following")
            for body in ("before", "to be damaged", "after"):
                assert send(server.name_server, body) == "SEND_OK"
            follower.kill()
        whole = (slave / name).read_bytes()
        (slave / name).write_bytes(whole.replace(b"to be damaged", b"\xff" * 13))
        with broker(slave, *as_slave) as follower:
            lines = logged_until(follower, "put back the bytes")
            lines += logged_until(follower, "following")
            assert send(server.name_server, "later") == "SEND_OK"
        assert (slave / name).read_bytes() == (master / name).read_bytes()
    assert [line for line in lines if "is damaged at byte" in line]


@pytest.mark.slow
def test_a_master_that_waited_for_its_slave_serves_when_that_is_back(tmp_path: Path) -> None:
    master, slave = tmp_path / "master", tmp_path / "slave"
    with HeldPort(beside=(-2, 1)) as held:  # the slave returns to its port
        as_slave = ("--broker-id", "1", "--port", str(held.port))
        with up(master, *SYNC) as server:
            at = ("--name-servers", server.name_server)
            with broker(slave, *as_slave, *at) as follower:
                logged_until(follower, "following")
                assert send(server.name_server, "on both") == "SEND_OK"
                assert known_slave(master) == held.address
            server.process.kill()
        with up(master, *SYNC) as server:
            at = ("--name-servers", server.name_server)
            # It tries again as long as its time lasts: a broker may be read-only for a moment only.
            with (
                Producer("tests", name_servers=server.name_server, timeout_s=1.0) as producer,
                pytest.raises(SendFailed, match="--accept-loss broker-a"),
            ):
                producer.send(Message("orders", b"too early"))
            with broker(slave, *as_slave, *at):
                logged_until(server.process, "enough slaves answer: starting again as a master")
                logged_until(server.process, "follows from log offset")
                assert send(server.name_server, "on both again") == "SEND_OK"


@pytest.mark.slow
def test_up_starts_masters_and_slaves_that_follow_when_it_is_ready(tmp_path: Path) -> None:
    flags = ("--brokers", "2", "--slaves", "1", *SYNC, "--store-log-file-size", "1MiB")
    with up(tmp_path / "data", *flags) as server:
        titles = "broker-a, broker-b, broker-a slave 1, broker-b slave 1"
        assert f"2 brokers ({titles}), data" in server.ready
        for _ in range(4):  # producers take the brokers in turn
            assert send(server.name_server, "on two brokers") == "SEND_OK"
        assert stop(server)[0] == 0
    logs = [
        (tmp_path / "data" / name / "commitlog" / f"{0:020}").read_bytes()
        for name in ("broker-a", "broker-a-slave-1", "broker-b", "broker-b-slave-1")
    ]
    assert b"on two brokers" in logs[0] + logs[2]
    assert logs[0] == logs[1]
    assert logs[2] == logs[3]


@pytest.mark.slow
def test_up_on_other_ports_keeps_its_masters_and_slaves(tmp_path: Path) -> None:
    """The system chooses the ports, so that masters remember addresses that answer no more."""
    flags = ("--slaves", "1", *SYNC, "--store-log-file-size", "1MiB")
    addresses = []
    for life in range(2):
        with up(tmp_path / "data", *flags) as server:
            assert send(server.name_server, f"life {life}") == "SEND_OK"
            addresses.append(known_slave(tmp_path / "data"))
            at = ("--name-servers", server.name_server)
            assert addresses[-1] in run("slave", "list", *at).stdout
            assert stop(server)[0] == 0
    assert addresses[0] != addresses[1]
    logs = [
        (tmp_path / "data" / name / "commitlog" / f"{0:020}").read_bytes()
        for name in ("", "broker-a-slave-1")
    ]
    assert logs[0] == logs[1]
    assert b"life 0" in logs[0]
    assert b"life 1" in logs[0]


def known_slave(master: Path) -> str:
    """The address that a master remembers."""
    saved = json.loads((master / "sparrowmq" / "slaves.json").read_text())
    return str(saved["slaves"]["1"])


@pytest.mark.slow
def test_a_consumer_continues_from_the_slave_of_a_killed_master(tmp_path: Path) -> None:
    with up(tmp_path / "other") as server:
        at = ("--name-servers", server.name_server, "--broker-name", "broker-b", *SYNC)
        with (
            broker(tmp_path / "master", *at) as master,
            broker(tmp_path / "slave", "--broker-id", "1", *at) as follower,
        ):
            logged_until(follower, "following")
            run("topic", "create", "orders", "--queues", "2", "--name-servers", server.name_server)
            sent = {str(number) for number in range(100)}
            with Producer("tests", name_servers=server.name_server) as producer:
                for body in sorted(sent):
                    producer.send(Message.text("orders", body))
            got = Got(enough=sent, kills=master, copied=tmp_path / "slave" / "config")
            with PushConsumer(
                "billing",
                {"orders": "*"},
                name_servers=server.name_server,
                from_where="FIRST_OFFSET",
                limits=FlowLimits(messages=1),
                pull_batch=1,
            ) as consumer:
                consumer.start(each=got.take)
                assert got.is_all.wait(PATIENCE_S), sorted(sent - got.bodies)


class Got:
    """What a consumer got; the master is killed after the first few."""

    def __init__(self, enough: set[str], kills: subprocess.Popen[str], copied: Path) -> None:
        self.bodies: set[str] = set()
        self.is_all = threading.Event()
        self._enough = enough
        self._kills = kills
        self._copied = copied

    def take(self, message: MessageExt) -> None:
        self.bodies.add(message.body.decode())
        if len(self.bodies) == 10:
            # The slave's tables are up to a second old: it must know the topic and the group.
            until(
                lambda: (
                    "orders" in self._text("topics")
                    and "billing" in self._text("subscriptionGroup")
                )
            )
            self._kills.kill()
        if self.bodies >= self._enough:
            self.is_all.set()

    def _text(self, table: str) -> str:
        path = self._copied / f"{table}.json"
        return path.read_text(encoding="utf-8") if path.exists() else ""


def until(holds: Callable[[], bool]) -> None:
    """Wait for something that no server reports."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
