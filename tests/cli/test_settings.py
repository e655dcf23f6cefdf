"""Where a setting's value comes from, and the error if it cannot be used."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from sparrowmq.broker.config import BrokerConfig, Flush
from sparrowmq.cli.settings.apache_conf import read_broker_conf
from sparrowmq.cli.settings.servers import all_settings, broker_settings, build, nameserver_settings
from sparrowmq.cli.settings.settings import Given, ServerSetting, SettingError, resolve
from sparrowmq.cli.settings.toml_file import read_toml
from sparrowmq.nameserver.config import NameServerConfig


def broker(
    flags: dict[str, str] | None = None,
    environment: dict[str, str] | None = None,
    file: Mapping[str, Given] | None = None,
) -> tuple[BrokerConfig, Mapping[str, Given]]:
    settings = broker_settings()
    typed = {name: Given(text, f"flag --{name}") for name, text in (flags or {}).items()}
    found = resolve(settings, flags=typed, environment=environment or {}, file=file or {})
    config: BrokerConfig = build(BrokerConfig, settings, found)
    return config, found.given


def test_a_flag_wins_over_the_environment_and_the_environment_over_the_file() -> None:
    file = {name: Given("7001", "f") for name in ("port", "ha-port")}
    config, given = broker(
        {"port": "7003"}, {"SPARROWMQ_PORT": "7002", "SPARROWMQ_HA_PORT": "7002"}, file
    )
    assert (config.port, config.ha_port) == (7003, 7002)
    assert given["port"].origin == "flag --port"
    assert given["ha-port"].origin == "environment variable SPARROWMQ_HA_PORT"


def test_the_file_wins_over_the_default() -> None:
    config, given = broker(file={"default-queues": Given("3", "x.toml default-queues")})
    assert config.default_queues == 3
    assert given["default-queues"].origin == "x.toml default-queues"


def test_the_defaults_are_rocketmqs_ports_on_loopback() -> None:
    config, _ = broker()
    ports = (config.port, config.port - 2 if config.vip_alias else 0)
    assert ports == (10911, 10909)
    assert config.ha_port == 0, "not the port after the broker's: 10912"
    assert NameServerConfig().listen_port == 9876
    assert (config.listen_host, NameServerConfig().listen_host) == ("127.0.0.1", "127.0.0.1")


def test_every_setting_has_one_name() -> None:
    names = [setting.name for setting in (*broker_settings(), *nameserver_settings())]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("flush-interval", "250ms", 0.25),
        ("flush-interval", "2s", 2.0),
        ("flush-interval", "2", 2.0),
        ("store-retention", "1h", 3_600_000),
        ("store-retention", "90000", 90_000),
        ("max-message", "1MiB", 1024 * 1024),
        ("max-message", "1MB", 1_000_000),
        ("store-log-file-size", "64MiB", 64 * 1024 * 1024),
        ("auto-create-topic", "no", False),
        ("flush", "sync", Flush.SYNC),
        ("flush", "SYNC_FLUSH", Flush.SYNC),
        ("name-servers", "a:1;b:2", ("a:1", "b:2")),
        ("name-servers", "a:1, b:2", ("a:1", "b:2")),
    ],
)
def test_values_are_written_as_people_write_them(name: str, text: str, expected: object) -> None:
    (setting,) = (each for each in broker_settings() if each.name == name)
    assert setting.parse(text, "a flag") == expected


@pytest.mark.parametrize(
    "setting", [*broker_settings(), *nameserver_settings()], ids=lambda s: s.name
)
def test_the_output_of_config_show_can_be_used_as_input(setting: ServerSetting) -> None:
    shown = setting.show(setting.default)
    if shown != "(none)":
        assert setting.parse(shown, "round trip") == setting.default


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("port", "http", "must be a whole number"),
        ("port", "1.5", "must be a whole number"),
        ("flush", "never", "must be one of async, sync"),
        ("auto-create-topic", "perhaps", "must be true or false"),
        ("flush-interval", "3 parsecs", "unit 'parsecs', must be one of ms, s, m, min, h, d"),
    ],
)
def test_a_bad_value_is_refused_with_name_origin_and_allowed_values(
    name: str, text: str, says: str
) -> None:
    with pytest.raises(SettingError) as refused:
        broker({name: text})
    message = str(refused.value)
    assert name in message
    assert f"flag --{name}" in message
    assert says in message


def test_a_value_refused_by_the_configuration_is_reported_with_its_origin() -> None:
    with pytest.raises(SettingError, match=r"flag --port is '70000', must be 0 to 65535"):
        broker({"port": "70000"})


def test_a_toml_file_has_a_section_per_server(tmp_path: Path) -> None:
    path = tmp_path / "sparrowmq.toml"
    path.write_text(
        'data = "/var/lib/x"\n[broker]\nport = 7\nauto-create-topic = false\n'
        'name-servers = ["a:1", "b:2"]\n[store]\nretention = "24h"\n[nameserver]\nport = 8\n'
    )
    file = read_toml(path, all_settings()).given
    config, given = broker(file=file)
    assert (config.port, config.auto_create_topic) == (7, False)
    assert config.name_servers == ("a:1", "b:2")
    assert config.store.retention_ms == 24 * 3_600_000
    assert given["port"].origin == f"{path} line 3: [broker] port"
    assert file["nameserver-port"].value == "8"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("port = ", "is not TOML"),
        ("[kafka]\nport = 1\n", "section [kafka]"),
        ("[broker]\nprot = 1\n", "line 2: [broker] prot is not a setting; did you mean port?"),
    ],
)
def test_a_toml_file_with_a_mistake_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    (problem,) = read_toml(path, all_settings()).problems
    assert says in problem


def test_a_broker_conf_of_apache_is_understood(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(
        "# a comment\nbrokerClusterName=C\nbrokerName = broker-x\nbrokerId=0\ndeleteWhen=05\n"
        "fileReservedTime=48\nflushDiskType=SYNC_FLUSH\nnamesrvAddr=n1:9876;n2:9876\n"
        "mappedFileSizeConsumeQueue=6000000\nlistenPort=10911\nnoSuchKey=true\n"
    )
    found = read_broker_conf(path)
    config, _ = broker(file=found.given)
    assert (config.cluster_name, config.broker_name, config.port) == ("C", "broker-x", 10911)
    assert config.flush is Flush.SYNC
    assert config.name_servers == ("n1:9876", "n2:9876")
    assert config.store.deletion_hour == 5
    assert config.store.retention_ms == 48 * 3_600_000
    assert config.store.queue_file_units == 300_000
    assert found.warnings == (f"{path} line 11: noSuchKey is not known here and has no effect",)


@pytest.mark.parametrize("line", ["rocketmqHome=/x", "filterServerNums=1", "messageStorePlugIn=a"])
def test_a_dangerous_key_of_a_broker_conf_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(line)
    (problem,) = read_broker_conf(path).problems
    assert f"line 1: {line.split('=')[0]} is refused" in problem


def test_a_line_of_a_broker_conf_without_a_value_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("\nbrokerName\n")
    (problem,) = read_broker_conf(path).problems
    assert "line 2 is 'brokerName', must be key=value" in problem


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        # Everything would be expired, and deleted in the next deletion hour
        ({"store-retention": "-1h"}, "flag --store-retention is '-1h', must be 1ms or more"),
        ({"store-retention": "0"}, "flag --store-retention is '0', must be 1ms or more"),
        ({"store-checkpoint-interval": "0"}, "checkpoint-interval is '0', must be 1ms or more"),
        # These would be loops without a pause
        ({"offsets-journal": "0"}, "--offsets-journal is '0', must be more than 0"),
        ({"offsets-save": "-1s"}, "--offsets-save is '-1s', must be more than 0"),
        ({"client-timeout": "0"}, "--client-timeout is '0', must be more than 0"),
        # Members would take expired locks for their own
        ({"lock-timeout": "59s"}, "--lock-timeout is '59s', must be 1m or more: members rely on"),
        ({"max-message": "0"}, "--max-message is '0', must be more than 0"),
        ({"limit-idle": "0"}, "--limit-idle is '0', must be more than 0"),
        ({"limit-max-connections": "-1"}, "--limit-max-connections is '-1', must be more than 0"),
        ({"ha-port": "70000"}, "--ha-port is '70000', must be 0 to 65535"),
        ({"listen": ""}, "--listen is '', must not be empty"),
        ({"store-delay-levels": ""}, "--store-delay-levels is '', must be one time or more"),
        (
            {"store-delay-levels": "1s,0"},
            "--store-delay-levels is '1s,0', must be one time or more",
        ),
        ({"broker-id": "-1"}, "--broker-id is '-1', must be 0 or more"),
        (
            {"min-in-sync-replicas": "2"},
            "--min-in-sync-replicas is '2', must not be more than in-sync-replicas",
        ),
        ({"name-servers": "here"}, "--name-servers is 'here', address 'here' is not host:port"),
    ],
)
def test_a_value_that_would_do_harm_is_refused(flags: dict[str, str], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        broker(flags)
