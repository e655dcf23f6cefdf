"""Prepares what commands cannot do themselves, so that a transcript has something to show.

@ cluster with a slave                        instead of two masters; the first line of a story
@ dead letter of billing in orders: body      a member of the group gives the message up
@ member of billing in orders                 a member that is live until the story ends
@ busy member of billing in orders            a process whose handler does not return
@ broker-a.1 stops                            a broker of the cluster; so does `starts`
@ second cluster                              its address is {second}
@ store in folder                             a store with a few messages, and no broker
@ damage in folder                            bytes of its log are overwritten
@ parted slave in folder                      its master runs at {second}, both have own messages
@ the next server is stopped when it is ready
"""

import gc
import re
import resource
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sparrowmq import Message, MessageExt
from sparrowmq.blocking import Admin, Producer, PushConsumer
from sparrowmq.broker.config import ReplicationMode
from sparrowmq.cli import serve
from sparrowmq.disk.real_disk import RealDisk
from sparrowmq.store.config import StoreConfig
from sparrowmq.testing import Cluster, cluster
from tests.cli.servers import running
from tests.faults.store_run import StoreRun
from tests.patience import PATIENCE_S
from tests.transcripts import busy_member

WITH_A_SLAVE = "cluster with a slave"
SMALL_LOG: dict[str, Any] = {
    "store": StoreConfig(log_file_size=64 * 1024),
    "replication": ReplicationMode.SYNC,
}
ALONE = SMALL_LOG | {"accept_loss": "broker-a"}
"""A master that serves without having heard of its slave: that is how two histories begin."""


def cluster_of(story: str) -> AbstractContextManager[Cluster]:
    """The cluster that a story is about."""
    if f"@ {WITH_A_SLAVE}" in story.splitlines():
        return cluster(slaves=1, replication=ReplicationMode.SYNC)
    return cluster(brokers=2)


class Stage:
    """The cluster of a story, and who takes part in it."""

    def __init__(self, about: Cluster, stack: ExitStack) -> None:
        self.name_server = about.name_server
        self.second = ""
        """The name server of another cluster."""
        self._until_the_end = stack
        self._directions: dict[str, Callable[..., None]] = {
            re.escape(WITH_A_SLAVE): lambda: None,
            r"dead letter of (\S+) in (\S+): (.+)": self._dead_letter,
            r"member of (\S+) in (\S+)": self._member,
            r"busy member of (\S+) in (\S+)": self._busy_member,
            r"(\S+) stops": about.stop_broker,
            r"(\S+) starts": about.start_broker,
            r"second cluster": self._second_cluster,
            r"store in (\S+)": self._store,
            r"damage in (\S+)": self._damage,
            r"parted slave in (\S+)": self._parted_slave,
            r"the next server is stopped when it is ready": self._stop_when_ready,
        }

    def follow(self, direction: str) -> None:
        """Do what a line says that begins with `@`."""
        for pattern, act in self._directions.items():
            found = re.fullmatch(pattern, direction)
            if found is not None:
                return act(*found.groups())
        raise AssertionError(f"unknown direction {direction!r}")

    # ---- members

    def _dead_letter(self, group: str, topic: str, body: str) -> None:
        with Admin(self.name_server) as admin:
            admin.create_group(group, retries=0)
        with Producer("shop", name_servers=self.name_server) as producer:
            producer.send(Message(topic, body.encode(), tags="paid", keys=body.replace(" ", "-")))
        with ExitStack() as stack:
            self._consume(stack, group, topic, self._fail)

    def _member(self, group: str, topic: str) -> None:
        self._consume(self._until_the_end, group, topic, lambda: None)

    def _busy_member(self, group: str, topic: str) -> None:
        words = [sys.executable, busy_member.__file__, self.name_server, group, topic]
        member = self._until_the_end.enter_context(running(words))
        assert member.stdout is not None
        assert member.stdout.readline() == "came\n"

    def _fail(self) -> None:
        raise ValueError("this order cannot be billed")

    def _consume(self, stack: ExitStack, group: str, topic: str, work: Callable[[], None]) -> None:
        came = threading.Event()

        def handle(messages: Sequence[MessageExt]) -> None:
            came.set()
            work()

        consumer = PushConsumer(
            group,
            {topic: "*"},
            name_servers=self.name_server,
            from_where="FIRST_OFFSET",
            max_reconsume_times=0,
        )
        stack.enter_context(consumer).start(handle)
        assert came.wait(PATIENCE_S)

    # ---- other clusters, stores and servers

    def _second_cluster(self) -> None:
        self.second = self._until_the_end.enter_context(cluster()).name_server

    def _store(self, folder: str) -> None:
        made = StoreRun(RealDisk(Path(folder)), Random(5), sync_flush=True)
        for _ in range(2):
            made.step()
        made.store.close()

    def _damage(self, folder: str) -> None:
        (log,) = (Path(folder) / "commitlog").iterdir()
        data = log.read_bytes()
        log.write_bytes(data[:250] + b"\xee" * 40 + data[290:])

    def _parted_slave(self, folder: str) -> None:
        data = Path("parted").absolute()
        part_from_its_master(data)
        (data / "broker-a.1").rename(folder)
        master = self._until_the_end.enter_context(cluster(data_dir=data, **ALONE))
        self.second = master.name_server

    def _stop_when_ready(self) -> None:
        patch = self._until_the_end.enter_context(pytest.MonkeyPatch.context())
        say_ready = serve.say_ready

        # Servers set these for their process
        self._until_the_end.callback(gc.unfreeze)
        self._until_the_end.callback(gc.set_threshold, *gc.get_threshold())
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._until_the_end.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)

        def say_and_stop(text: str) -> None:
            say_ready(text)
            patch.undo()
            signal.raise_signal(signal.SIGTERM)

        patch.setattr(serve, "say_ready", say_and_stop)


def part_from_its_master(data: Path) -> None:
    """Make the stores of a master and a slave, `broker-a.1`, that took a message as a master while
    its master took another one."""
    with cluster(slaves=1, data_dir=data, **SMALL_LOG) as both:
        _send(both, b"both")
    with cluster(data_dir=data, **ALONE) as master:
        _send(master, b"the master's")
    (data / "broker-a").rename(data / "kept")
    (data / "broker-a.1").rename(data / "broker-a")
    with cluster(data_dir=data, **ALONE) as slave:
        _send(slave, b"the slave's")
    (data / "broker-a").rename(data / "broker-a.1")
    (data / "kept").rename(data / "broker-a")


def _send(to: Cluster, body: bytes) -> None:
    with Producer("shop", name_servers=to.name_server) as producer:
        producer.send(Message("orders", body))
