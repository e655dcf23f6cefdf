"""A broker process is drained under load and killed on the way, and nothing is lost."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from sparrowmq import BrokerDrain, DrainState, Message, MessageExt, MessageQueue
from sparrowmq.blocking import Admin, Producer, PushConsumer
from sparrowmq.testing import cluster
from sparrowmq.testing.held_port import HeldPort
from tests.cli.in_process import run
from tests.cli.servers import AS_A_COMMAND, broker, running, up
from tests.cli.test_broker_roles import Sender
from tests.patience import PATIENCE_S


class Slow:
    """Handles nothing until it may."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self._got: set[str] = set()
        self._came = threading.Condition()

    def __call__(self, messages: Sequence[MessageExt]) -> None:
        assert self.may.wait(PATIENCE_S)
        with self._came:
            self._got |= {message.body.decode() for message in messages}
            self._came.notify_all()

    def until(self, wanted: set[str]) -> None:
        """Return when everything wanted was handled."""
        with self._came:
            assert self._came.wait_for(lambda: self._got >= wanted, PATIENCE_S), wanted - self._got


class Watched:
    """A drain in a thread, and its reports."""

    def __init__(self, name_server: str, broker_name: str) -> None:
        self.ended: BrokerDrain | None = None
        self._at = name_server
        self._name = broker_name
        self._now = threading.Condition()
        self._last: BrokerDrain | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with Admin(self._at) as admin:
            self.ended = admin.drain_broker(self._name, grace_s=2, progress=self._report)

    def _report(self, now: BrokerDrain) -> None:
        with self._now:
            self._last = now
            self._now.notify_all()

    def until(self, failed: bool) -> None:
        """Return when it reports that the broker refuses sends and has messages left, or that it
        does not answer."""

        def holds() -> bool:
            now = self._last
            return now is not None and bool(now.failure) is failed and now.left > 0

        with self._now:
            assert self._now.wait_for(holds, PATIENCE_S)

    def join(self) -> None:
        self._thread.join(PATIENCE_S)


@pytest.mark.slow
def test_a_broker_that_is_killed_while_it_drains_under_load_loses_nothing(tmp_path: Path) -> None:
    with up(tmp_path / "other") as server, HeldPort(beside=(-2, 1)) as held:
        own = (
            *("--broker-name", "broker-b", "--port", str(held.port)),
            *("--name-servers", server.name_server),
        )
        slow = Slow()
        with (
            Admin(server.name_server, timeout_s=PATIENCE_S) as admin,
            broker(tmp_path / "drained", *own) as victim,
            PushConsumer("billing", {"orders": "*"}, name_servers=server.name_server) as consumer,
        ):
            admin.create_topic("orders", queues=2)
            with Sender(server.name_server) as sender:
                sender.until_sent()
                consumer.start(slow)
                drain = Watched(server.name_server, "broker-b")
                drain.until(failed=False)
                sender.until_sent(200)
                os.kill(victim.pid, signal.SIGKILL)
                drain.until(failed=True)
                sender.until_sent(200)
                with broker(tmp_path / "drained", *own):
                    drain.until(failed=False)
                    slow.may.set()
                    sender.until_sent(200)
                    drain.join()
                    assert drain.ended is not None
                    assert drain.ended.state is DrainState.LEFT
                    assert [each.name for each in admin.brokers()] == ["broker-a"]
                sender.until_sent(20)
            assert sender.failed == []
            slow.until(sender.acknowledged)


@pytest.mark.slow
def test_a_killed_drain_can_be_repeated_and_a_broker_killed_while_resuming_comes_back(
    tmp_path: Path,
) -> None:
    with up(tmp_path / "other") as server, HeldPort(beside=(-2, 1)) as held:
        at = ("--name-servers", server.name_server)
        own = ("--broker-name", "broker-b", "--port", str(held.port), *at)
        slow = Slow()
        with (
            Admin(server.name_server, timeout_s=PATIENCE_S) as admin,
            PushConsumer("billing", {"orders": "*"}, name_servers=server.name_server) as consumer,
            ExitStack() as load,
        ):
            with broker(tmp_path / "drained", *own) as victim:
                admin.create_topic("orders", queues=2)
                sender = load.enter_context(Sender(server.name_server))
                sender.until_sent()
                consumer.start(slow)
                with draining(server.name_server, "broker-b") as process:
                    read_until(process, "left to billing")
                    process.kill()
                sender.until_sent(200)
                assert "R--" in run("topic", "route", "orders", *at).stdout
                with draining(server.name_server, "broker-b") as process:
                    read_until(process, "left to billing")
                    slow.may.set()
                    read_until(process, "broker-b is drained: it can be stopped")
                    assert process.wait(PATIENCE_S) == 0
                sender.until_sent()
                with as_process("resume", "broker-b", *at):
                    victim.kill()
                    victim.wait()
            with broker(tmp_path / "drained", *own):
                resumed = run("broker", "resume", "broker-b", *at)
                assert resumed.returncode == 0, resumed.stderr
                assert [each.name for each in admin.brokers()] == ["broker-a", "broker-b"]
                with Producer("other", name_servers=server.name_server) as producer:
                    place = MessageQueue("orders", "broker-b", 0)
                    assert producer.send(Message.text("orders", "direct"), queue=place).is_ok
                sender.until_sent()
                slow.until({"direct", *sender.acknowledged})
                assert sender.failed == []


def read_until(process: subprocess.Popen[str], text: str) -> None:
    """Return when a command has printed this."""
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if text in line:
            return
    raise AssertionError(said)


def as_process(*words: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """A command about brokers."""
    return running([sys.executable, "-c", AS_A_COMMAND, "broker", *words])


def draining(
    name_server: str, broker_name: str = "broker-a"
) -> AbstractContextManager[subprocess.Popen[str]]:
    """The command as a process."""
    return as_process("drain", broker_name, "--name-servers", name_server, "--grace", "0s")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_prints_how_to_continue(number: signal.Signals) -> None:
    with cluster(brokers=2) as running:
        at = ("--name-servers", running.name_server)
        running.create_topic("orders", queues=1)
        assert run("send", "orders", "x", "--count", "2", *at).returncode == 0
        one = ("consume", "orders", "--group", "billing", "--from", "first", "--count", "2")
        assert run(*one, *at).returncode == 0
        assert run("send", "orders", "x", "--count", "2", *at).returncode == 0
        with draining(running.name_server) as process:
            assert process.stderr is not None
            assert "message left to billing" in process.stderr.readline()
            process.send_signal(number)
            _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 128 + number
        assert said.splitlines()[-1] == (
            "sparrowmq: stopped before it ended: broker-a keeps draining and stays read-only."
            " Continue with: sparrowmq broker drain broker-a; undo with: sparrowmq broker resume"
            " broker-a"
        )
        assert "R--" in run("topic", "route", "orders", *at).stdout
        ended = run("broker", "drain", "broker-a", "--ignore-group", "billing", *at)
        assert "broker-a is drained: it can be stopped" in ended.stderr
