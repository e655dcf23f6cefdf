"""`sparrowmq up`: settings reach every broker, and flags that it overrules are named."""

from pathlib import Path

import pytest

from sparrowmq.broker.config import BrokerConfig, Flush
from sparrowmq.cli.local_cluster import broker_arguments, members, not_served
from sparrowmq.cli.settings.servers import broker_config, broker_settings, read_file
from sparrowmq.cli.settings.settings import FoundSettings
from tests.cli.in_process import run


def child(first: BrokerConfig, number: int, *, brokers: int = 3, slaves: int = 0) -> BrokerConfig:
    """The configuration that the command line of a broker gives."""
    member = list(members(first, brokers, slaves))[number]
    words = broker_arguments(first, member, "127.0.0.1:9876")
    flags = zip(words[::2], words[1::2], strict=True)
    values = {flag.removeprefix("--").replace("-", "_"): text for flag, text in flags}
    return broker_config(values, FoundSettings())


def test_each_of_several_brokers_gets_every_setting(tmp_path: Path) -> None:
    other = {
        "max_topics": "7",
        "store_retention": "90m",
        "limit_idle": "1500ms",
        "auto_create_topic": "no",
        "flush": "sync",
        "replication": "sync",
        "in_sync_replicas": "2",
        "slave_timeout": "2s",
        "cluster_name": "C",
        "store_delay_levels": "1s,2s",
        "advertise": "localhost",
    }
    first = broker_config({**other, "data": str(tmp_path)}, FoundSettings())
    second = child(first, 1)
    own = {"broker-name", "broker-id", "port", "ha-port", "metrics-port", "data", "name-servers"}
    for setting in broker_settings():
        if setting.name not in own:
            assert setting.value_in(second) == setting.value_in(first), setting.name
    assert (second.broker_name, second.port, second.ha_port) == ("broker-b", 10921, 0)
    assert second.data_dir == tmp_path / "broker-b"
    assert second.flush is Flush.SYNC


def test_port_0_stays_0_for_every_broker(tmp_path: Path) -> None:
    first = broker_config({"data": str(tmp_path), "port": "0", "ha_port": "0"}, FoundSettings())
    third = child(first, 2)
    assert (third.port, third.ha_port, third.metrics_port) == (0, 0, 0)


def test_no_two_brokers_share_a_port_or_a_directory(tmp_path: Path) -> None:
    first = broker_config({"data": str(tmp_path)}, FoundSettings())
    started = [child(first, number, brokers=2, slaves=2) for number in range(6)]
    ports = [
        port
        for each in started
        for port in (each.port, each.port - 2, each.port + 1, each.metrics_port)
    ]
    assert len(set(ports)) == len(ports) == 24
    assert [each.data_dir.name for each in started] == [
        *("broker-a", "broker-b"),
        *("broker-a-slave-1", "broker-b-slave-1"),
        *("broker-a-slave-2", "broker-b-slave-2"),
    ]
    assert [(each.broker_name, each.broker_id) for each in started] == [
        *(("broker-a", 0), ("broker-b", 0), ("broker-a", 1)),
        *(("broker-b", 1), ("broker-a", 2), ("broker-b", 2)),
    ]


def test_a_single_master_keeps_its_name_and_its_messages(tmp_path: Path) -> None:
    first = broker_config({"data": str(tmp_path), "broker_name": "mine"}, FoundSettings())
    master, slave = (child(first, number, brokers=1, slaves=1) for number in range(2))
    assert (master.broker_name, master.data_dir) == ("mine", tmp_path)
    assert (slave.broker_name, slave.data_dir) == ("mine", tmp_path / "mine-slave-1")


@pytest.mark.parametrize(
    ("stores", "brokers", "served", "other"),
    [
        ((), 1, ["."], []),
        ((), 2, ["broker-a", "broker-b"], []),
        (["."], 2, [".", "broker-b"], []),
        ([".", "broker-b"], 2, [".", "broker-b"], []),
        ([".", "broker-b"], 1, ["."], ["broker-b"]),
        (["broker-a", "broker-b"], 1, ["broker-a"], ["broker-b"]),
        (["broker-a", "broker-b", "broker-c"], 2, ["broker-a", "broker-b"], ["broker-c"]),
        ([".", "broker-a"], 1, ["."], ["broker-a"]),
        ([".", "broker-a"], 2, ["broker-a", "broker-b"], ["."]),
        ([".", "broker-a-slave-1"], 1, ["."], []),
    ],
)
def test_a_start_with_another_number_of_brokers_keeps_existing_messages(
    stores: list[str], brokers: int, served: list[str], other: list[str], tmp_path: Path
) -> None:
    for store in stores:
        (tmp_path / store / "commitlog").mkdir(parents=True)
    first = broker_config({"data": str(tmp_path)}, FoundSettings())
    assert [each.data_dir for each in members(first, brokers, 0)] == [
        tmp_path / name for name in served
    ]
    commands = not_served(first, brokers)
    assert list(commands) == [tmp_path / name for name in other]
    for path, command in commands.items():  # which is true
        number = int(command.rpartition("--brokers ")[2]) if "--brokers" in command else 1
        assert path in {each.data_dir for each in members(first, number, 0)}


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--broker-id", "1"], "flag --broker-id has no effect, `up` runs masters"),
        (["--name-servers", "a:1"], "flag --name-servers has no effect, `up` runs a name server"),
        (["--brokers", "2", "--broker-name", "x"], "flag --broker-name has no effect, each of"),
    ],
)
def test_up_warns_of_flags_that_it_overrules(flags: list[str], says: str, tmp_path: Path) -> None:
    # Refused afterwards for its address, so that nothing starts
    ran = run("up", *flags, "--listen", "0.0.0.0", cwd=tmp_path)
    assert ran.returncode == 2
    assert ran.stderr.startswith(f"warning: {says}")


def test_a_broker_conf_gives_its_warnings_once(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("noSuchKey=true\nnamesrvAddr=a:1\n")
    ran = run("up", "--config", "broker.conf", "--listen", "0.0.0.0", cwd=tmp_path)
    assert ran.stderr.count("noSuchKey is not known here") == 1
    assert "broker.conf line 2: namesrvAddr has no effect" in ran.stderr


def test_a_name_server_reports_that_a_broker_conf_is_not_for_it(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("brokerName=x\n")
    found = read_file(tmp_path / "broker.conf", "nameserver")
    assert (found.given, found.problems) == ({}, ())
    (warning,) = found.warnings
    assert "broker.conf has no effect: it is read as Apache's broker.conf" in warning
