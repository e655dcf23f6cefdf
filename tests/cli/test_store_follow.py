"""`sparrowmq store follow`: a diverged slave is made to follow again."""

import json
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.store.config import StoreConfig
from sparrowmq.store.files import StoreFiles
from sparrowmq.testing import cluster
from tests.cli.in_process import run
from tests.cli.test_json_shapes import shape, shapes
from tests.transcripts.stage import ALONE, SMALL_LOG, part_from_its_master


def send(name_server: str, body: str) -> str:
    ran = run("send", "orders", body, "--name-servers", name_server)
    return ran.stdout.partition(" ")[0] or ran.stderr


def bodies(directory: Path) -> list[bytes]:
    records = StoreFiles.at(directory).records()
    return [record.body for record in records if record.topic == "orders"]


@pytest.fixture
def parted(tmp_path: Path) -> Path:
    """A slave that took a message as a master, while its master took another one."""
    part_from_its_master(tmp_path)
    return tmp_path


def test_a_slave_is_cut_where_it_diverged_and_follows(parted: Path) -> None:
    slave = parted / "broker-a.1"
    with cluster(data_dir=parted, **ALONE) as running:
        where = ("--name-servers", running.name_server)
        looked = run("store", "follow", str(slave), *where)
        assert looked.returncode == 0, looked.stderr
        assert " 1 message (" in looked.stdout
        assert looked.stdout.endswith("nothing was changed; --yes moves them away\n")
        assert bodies(slave) == [b"both", b"the slave's"]
        done = run("store", "follow", str(slave), *where, "--yes", "--json")
        assert done.returncode == 0, done.stderr
        command = "store follow slave-data --yes"
        assert shape(command, done.stdout) == shapes()[command]
        assert json.loads(done.stdout)["state"] == "cut"
    assert bodies(slave) == [b"both"]
    (kept,) = (slave / "sparrowmq" / "quarantine").iterdir()
    assert b"the slave's" in kept.read_bytes()
    with cluster(slaves=1, data_dir=parted, **SMALL_LOG) as running:
        assert send(running.name_server, "both again") == "SEND_OK"
    assert bodies(slave) == [b"both", b"the master's", b"both again"]


def test_a_slave_of_the_same_history_is_left_alone(tmp_path: Path) -> None:
    with cluster(slaves=1, data_dir=tmp_path, **SMALL_LOG) as running:
        assert send(running.name_server, "both") == "SEND_OK"
        master = running.broker_addresses["broker-a"]
        running.stop_broker("broker-a.1")
        looked = run("store", "follow", str(tmp_path / "broker-a.1"), "--master", master, "--yes")
    assert looked.returncode == 0, looked.stderr
    assert looked.stdout.endswith(f"has the same history as {master}: nothing to cut\n")


def test_without_a_master_nothing_is_changed(parted: Path) -> None:
    slave = str(parted / "broker-a.1")
    with cluster() as running:
        where = ("--name-servers", running.name_server)
        for flags, says in (
            ((*where, "--broker-name", "other"), "knows no master of other"),
            (("--master", "127.0.0.1:1"), "127.0.0.1:1 does not describe its log"),
        ):
            refused = run("store", "follow", slave, *flags, "--yes")
            assert refused.returncode == 2
            assert says in refused.stderr
    assert bodies(parted / "broker-a.1") == [b"both", b"the slave's"]


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (
            {"cluster_name": "Elsewhere"},
            "cluster of {store} is DefaultCluster, that of {at} is",
        ),
        ({"names": "b"}, "the broker name of {store} is broker-a, that of {at} is broker-b"),
        ({"store": StoreConfig(log_file_size=128 * 1024)}, "size of log files"),
        ({}, "the log of {at} is empty, and {store} has"),
    ],
    ids=["another cluster", "another broker", "another file size", "an empty log"],
)
def test_the_store_of_another_broker_is_refused(
    names: dict[str, Any], fault: str, tmp_path: Path
) -> None:
    """A log that is still empty parts from no other one, so its history tells nothing."""
    slave = tmp_path / "ours" / "broker-a.1"
    with cluster(slaves=1, data_dir=tmp_path / "ours", **SMALL_LOG) as running:
        assert send(running.name_server, "ours") == "SEND_OK"
    settings = SMALL_LOG | names
    brokers = 2 if settings.pop("names", "") else 1
    with cluster(brokers=brokers, data_dir=tmp_path / "theirs", **settings) as running:
        master = list(running.broker_addresses.values())[-1]
        refused = run("store", "follow", str(slave), "--master", master, "--yes")
    assert refused.returncode == 2
    assert fault.format(store=slave, at=master) in refused.stderr
    assert bodies(slave) == [b"ours"]


def test_a_store_that_names_no_owner_is_compared_by_its_history(parted: Path) -> None:
    """Releases before this one noted none."""
    slave = parted / "broker-a.1"
    (slave / "sparrowmq" / "owner.json").unlink()
    with cluster(data_dir=parted, **ALONE) as running:
        where = ("--name-servers", running.name_server)
        looked = run("store", "follow", str(slave), *where)
    assert looked.returncode == 0, looked.stderr
    assert " 1 message (" in looked.stdout
