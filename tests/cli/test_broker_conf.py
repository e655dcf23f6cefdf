"""Apache's broker.conf: every key of its example files is taken over, explained or refused."""

from pathlib import Path

import pytest

from sparrowmq.broker.config import BrokerConfig
from sparrowmq.cli.settings.apache_conf import TAKEN, read_broker_conf
from sparrowmq.cli.settings.servers import broker_settings, build
from sparrowmq.cli.settings.settings import Given, SettingError, resolve

MASTER = """
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
deleteWhen=04
fileReservedTime=48
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
"""
# Keys of conf/ in Apache's distribution with a value that is used there, and what is said here.
EXAMPLES = {
    "listenPort=30911": "",
    "haListenPort=10912": "",
    "namesrvAddr=127.0.0.1:9876": "",
    "storePathRootDir=/srv/rmqstore/node00": "",
    "fetchNamesrvAddrByAddressServer=false": "",
    "sendMessageThreadPoolNums=16": "no thread pools",
    "totalReplicas=2": "no replication",
    "inSyncReplicas=2": "no replication",
    "minInSyncReplicas=1": "",
    "enableAutoInSyncReplicas=true": "no replication",
    "slaveReadEnable=true": "no replication",
    "enableSlaveActingMaster=true": "no replication",
    "supportActingMaster=true": "no replication",
    "allAckInSyncStateSet=true": "no replication",
    "brokerHeartbeatInterval=1000": "no controller",
    "brokerNotActiveTimeoutMillis=5000": "no controller",
    "sendHeartbeatTimeoutMillis=1000": "no controller",
    "controllerAddr=127.0.0.1:9878": "no controller",
    "controllerDLegerGroup=group1": "no controller",
    "controllerDLegerPeers=n0-127.0.0.1:9878": "no controller",
    "controllerDLegerSelfId=n0": "no controller",
    "dLegerGroup=RaftNode00": "no DLedger",
    "dLegerPeers=n0-127.0.0.1:40911": "no DLedger",
    "dLegerSelfId=n0": "no DLedger",
    "brokerIP2=127.0.0.1": "no replication",
    "enablePropertyFilter=true": "",
    "enablePropertyFilter=false": "always on",
    "useTLS=true": "not known here",
}
REFUSED = {
    "brokerRole=SYNC_MASTER": "one copy",
    "brokerRole=SLAVE": "one copy",
    "enableDLegerCommitLog=true": "another format",
    "enableControllerMode=true": "no controller",
    "enableControllerInNamesrv=true": "no controller",
    "brokerConfigPaths=/etc/a.conf": "up --brokers",
    "fetchNamesrvAddrByAddressServer=true": "namesrvAddr",
    "transientStorePoolEnable=true": "not in any file",
    "filterServerNums=1": "shell command",
}


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    return tmp_path / "broker.conf"


def built(path: Path, warnings: list[str]) -> BrokerConfig:
    settings = broker_settings()
    file = read_broker_conf(path, warnings.append)
    flags = {} if "data" in file else {"data": Given("d", "flag --data")}
    config: BrokerConfig = build(
        BrokerConfig, settings, resolve(settings, flags=flags, environment={}, file=file)
    )
    return config


def test_the_file_that_apache_ships_needs_no_word(conf: Path) -> None:
    conf.write_text(MASTER)
    warnings: list[str] = []
    assert built(conf, warnings).store.deletion_hour == 4
    assert warnings == []


@pytest.mark.parametrize(("line", "says"), EXAMPLES.items())
def test_a_key_of_apaches_examples_is_taken_over_or_explained(
    conf: Path, line: str, says: str
) -> None:
    conf.write_text(MASTER + line)
    warnings: list[str] = []
    built(conf, warnings)
    assert len(warnings) == (1 if says else 0), warnings
    assert all(says in warning and line.split("=")[0] in warning for warning in warnings)


@pytest.mark.parametrize(("line", "says"), REFUSED.items())
def test_a_key_that_breaks_a_promise_is_refused(conf: Path, line: str, says: str) -> None:
    conf.write_text(line)
    with pytest.raises(SettingError, match=f"line 1: {line.split('=')[0]} is refused, .*{says}"):
        read_broker_conf(conf, print)


def test_what_asks_for_nothing_is_not_refused(conf: Path) -> None:
    conf.write_text("enableDLegerCommitLog=false\ntransientStorePoolEnable=false\n")
    warnings: list[str] = []
    built(conf, warnings)
    assert warnings == []


@pytest.mark.parametrize(
    ("text", "is_accepted"),
    [
        ("storePathRootDir=/a/b\nstorePathCommitLog=/a/b/commitlog", True),
        ("storePathCommitLog=/a/b/commitlog/\nstorePathRootDir=/a/b/", True),
        ("storePathRootDir=/a/b\nstorePathCommitLog=/fast/commitlog", False),
        ("storePathCommitLog=/a/b/commitlog", False),
    ],
)
def test_a_log_in_another_place_is_refused(conf: Path, text: str, is_accepted: bool) -> None:
    conf.write_text(text)
    if is_accepted:
        assert str(built(conf, []).data_dir) == "/a/b"
        return
    with pytest.raises(SettingError, match=r"storePathCommitLog is .*, the log has to be .*commit"):
        read_broker_conf(conf, print)


def test_times_and_levels_get_their_units(conf: Path) -> None:
    conf.write_text(
        "waitTimeMillsInSendQueue=400\ntransactionTimeOut=1500\ntransactionCheckInterval=2000\n"
        "transactionCheckMax=3\ntimerMaxDelaySec=3600\nmessageDelayLevel=1s 5s 10s\n"
        "registerNameServerPeriod=10000\nflushConsumerOffsetInterval=7000\n"
    )
    config = built(conf, [])
    assert config.busy_lag_s == 0.4
    assert (config.transaction_timeout_s, config.transaction_check_interval_s) == (1.5, 2.0)
    assert config.transaction_check_max == 3
    assert config.store.delay_levels_ms == (1_000, 5_000, 10_000)
    assert (config.register_interval_s, config.offsets_save_s) == (10.0, 7.0)


@pytest.mark.parametrize("line", ["fileReservedTime=two days", "transactionTimeOut=6s"])
def test_a_value_that_is_no_number_is_refused_with_its_line(conf: Path, line: str) -> None:
    conf.write_text(f"\n{line}\n")
    with pytest.raises(SettingError, match=f"line 2: {line.split('=')[0]} is"):
        read_broker_conf(conf, print)


def test_every_key_that_is_taken_over_names_a_setting() -> None:
    known = {setting.name for setting in broker_settings()}
    assert {setting for setting, _ in TAKEN.values()} <= known
