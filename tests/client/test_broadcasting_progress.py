"""Where a broadcasting member without an instance name keeps its progress: the next run finds it,
and two live members never share it."""

import logging
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.client.client import core_of
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.config import ClientConfig
from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.client.group.broker_requests import routes
from sparrowmq.client.group.group_consumer import core_of_consumer
from sparrowmq.client.group.offsets_folder import claim_folder
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import GROUP, TOPIC, create_topic, send


class Run:
    """One run of a program with a broadcasting member, on the host `here`."""

    def __init__(self, sim: RunningCluster, offsets_dir: Path, **settings: Any) -> None:
        self.got: list[bytes] = []
        self._sim = sim
        client = sim.client_on("here", routes, **settings)
        object.__setattr__(client.config, "instance_name", "")
        self._client = client
        self.consumer = PushConsumer(
            GROUP,
            {TOPIC: "*"},
            client=client,
            threads=InlineWorkers(),
            model="BROADCASTING",
            offsets_dir=offsets_dir,
        )
        self._run(self._start())
        sim.advance(1)

    async def _start(self) -> None:
        await core_of(self._client).start()
        await self.consumer.start(
            lambda messages: self.got.extend(message.body for message in messages)
        )

    def end(self) -> None:
        self._run(self._end())

    async def _end(self) -> None:
        await self.consumer.stop()
        await core_of_consumer(self.consumer).stop()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self._sim.run(work, on=self._sim.host("here"))


def begun(sim: RunningCluster) -> None:
    """A topic whose first message is gone, so that a new group begins at its end."""
    create_topic(sim)
    send(sim, b"old")
    sim.advance(1)


def folders(directory: Path) -> list[str]:
    return sorted(path.name.partition("@")[2] for path in directory.iterdir())


def test_a_run_continues_where_the_one_before_it_ended(tmp_path: Path) -> None:
    with SimCluster(seed=1).run() as sim:
        begun(sim)
        first = Run(sim, tmp_path)
        send(sim, b"a")
        sim.advance(1)
        first.end()
        send(sim, b"b")
        second = Run(sim, tmp_path)
        assert second.got == [b"b"]
        second.end()
        assert folders(tmp_path) == ["DEFAULT"]


def test_members_that_live_at_the_same_time_have_folders_of_their_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with SimCluster(seed=1).run() as sim:
        begun(sim)
        with caplog.at_level(logging.INFO, "sparrowmq.client"):
            both = [Run(sim, tmp_path), Run(sim, tmp_path)]
        send(sim, b"a")
        sim.advance(1)
        assert [run.got[-1:] for run in both] == [[b"a"], [b"a"]]
        for run in both:
            run.end()
        assert folders(tmp_path) == ["DEFAULT", "DEFAULT-2"]
        assert f"DEFAULT-2/{GROUP}; an instance_name gives each member" in caplog.text


def test_units_have_folders_of_their_own(tmp_path: Path) -> None:
    with SimCluster(seed=1).run() as sim:
        begun(sim)
        Run(sim, tmp_path, unit_name="east").end()
        assert folders(tmp_path) == ["DEFAULT@east"]


def test_a_member_whose_folder_cannot_be_locked_consumes_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with SimCluster(seed=1).run() as sim:
        begun(sim)
        in_the_way = tmp_path / f"{sim.host('here').ip}@DEFAULT" / GROUP / "lock"
        in_the_way.mkdir(parents=True)
        run = Run(sim, tmp_path)
        send(sim, b"a")
        sim.advance(1)
        assert run.got[-1:] == [b"a"]
        run.end()
    assert "cannot be locked" in caplog.text
    assert "instance_name" in caplog.text


def test_a_forked_child_does_not_free_the_folder_of_its_parent(tmp_path: Path) -> None:
    config = ClientConfig(name_servers="127.0.0.1:9876")  # type: ignore[arg-type]  # it takes a text
    client = ClientCore(config)
    client.client_id = "10.0.0.1@17#4"
    ours = claim_folder(tmp_path, client, GROUP)
    child = os.fork()
    if child == 0:
        ours.release()
        os._exit(0)
    os.waitpid(child, 0)
    other = claim_folder(tmp_path, client, GROUP)
    assert folders(tmp_path) == ["DEFAULT", "DEFAULT-2"]
    ours.release()
    again = claim_folder(tmp_path, client, GROUP)
    assert again.path == ours.path
    other.release()
    again.release()
