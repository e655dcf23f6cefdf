"""Apache's broker.conf: every key of its example files is applied, explained or refused."""

import re
from pathlib import Path

import pytest

from sparrowmq.broker.config import BrokerConfig, ReplicationMode
from sparrowmq.cli.settings.apache_conf import TAKEN, read_broker_conf
from sparrowmq.cli.settings.servers import broker_config, broker_settings, read_file
from sparrowmq.cli.settings.settings import SettingError
from tests.cli.in_process import run

MASTER = """
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
deleteWhen=04
fileReservedTime=48
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
"""
# Keys of conf/ in Apache's distribution with a value that is used there, and our message about it.
EXAMPLES = {
    "listenPort=30911": "",
    "haListenPort=10912": "",
    "namesrvAddr=127.0.0.1:9876": "",
    "storePathRootDir=/srv/rmqstore/node00": "",
    "fetchNamesrvAddrByAddressServer=false": "",
    "sendMessageThreadPoolNums=16": "no thread pools",
    "totalReplicas=2": "are counted",
    "inSyncReplicas=2": "only a SYNC_MASTER waits",
    "minInSyncReplicas=1": "",
    "enableAutoInSyncReplicas=true": "SLAVE_NOT_AVAILABLE",
    "slaveReadEnable=true": "",
    "accessMessageInMemoryMaxRatio=40": "the system is asked",
    "enableSlaveActingMaster=true": "started as a master",
    "supportActingMaster=true": "started as a master",
    "allAckInSyncStateSet=true": "inSyncReplicas copies",
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
    "brokerIP2=127.0.0.1": "brokerIP1",
    "enablePropertyFilter=true": "",
    "enablePropertyFilter=false": "always on",
    "diskSpaceWarningLevelRatio=95": "",
    "slaveTimeout=3000": "",
    "haSlaveFallbehindMax=268435456": "",
    "haMaxGapNotInSync=268435456": "",
    "haTransferBatchSize=32768": "",
    "haMasterAddress=": "",
    "tls.enable=false": "",
    "tls.server.mode=disabled": "",
    "aclEnable=false": "",
    "authenticationEnabled=false": "",
    "noSuchKey=true": "not known here",
}
REFUSED = {
    "haMasterAddress=10.0.0.1:10912": "asks name servers",
    "enableDLegerCommitLog=true": "another format",
    "enableControllerMode=true": "no controller",
    "enableControllerInNamesrv=true": "no controller",
    "brokerConfigPaths=/etc/a.conf": "up --brokers",
    "fetchNamesrvAddrByAddressServer=true": "namesrvAddr",
    "transientStorePoolEnable=true": "not in any file",
    "filterServerNums=1": "shell command",
    "readOnlyCommitLogStorePaths=/old/commitlog": "would be missing",
}
# Of RocketMQ 4 and 5
PROTECTIONS = [
    "aclEnable=true",
    "authenticationEnabled=true",
    "authorizationEnabled=TRUE",
    "migrateAuthFromV1Enabled=true",
    "useTLS=true",
    "tls.enable=true",
    "tls.server.mode=enforcing",
    "tls.server.mode=permissive",
    "tls.test.mode.enable=true",
    "tls.server.need.client.auth=require",
    "tls.server.keyPath=/etc/rocketmq/server.key",
    "tls.config.file=/etc/rocketmq/tls.properties",
]


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    return tmp_path / "broker.conf"


def built(path: Path, warnings: list[str]) -> BrokerConfig:
    file = read_broker_conf(path)
    warnings += file.warnings
    return broker_config({}, file)


def test_the_file_that_apache_ships_gives_no_warning(conf: Path) -> None:
    conf.write_text(MASTER)
    warnings: list[str] = []
    assert built(conf, warnings).store.deletion_hour == 4
    assert warnings == []


@pytest.mark.parametrize(("line", "says"), EXAMPLES.items())
def test_a_key_of_apaches_examples_is_applied_or_explained(
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
    (problem,) = read_broker_conf(conf).problems
    assert re.search(f"line 1: {line.split('=')[0]} is refused, .*{says}", problem)


@pytest.mark.parametrize(
    ("lines", "replication", "copies", "broker_id"),
    [
        ("brokerRole=ASYNC_MASTER\nbrokerId=0", ReplicationMode.ASYNC, 1, 0),
        ("brokerRole=sync_master", ReplicationMode.SYNC, 2, 0),
        ("brokerRole=SYNC_MASTER\ninSyncReplicas=3", ReplicationMode.SYNC, 3, 0),
        ("brokerRole=SYNC_MASTER\ninSyncReplicas=1", ReplicationMode.SYNC, 1, 0),
        ("brokerRole=SLAVE\nbrokerId=2", ReplicationMode.ASYNC, 1, 2),
        ("brokerId=0", ReplicationMode.ASYNC, 1, 0),
    ],
)
def test_roles_are_applied(
    conf: Path, lines: str, replication: ReplicationMode, copies: int, broker_id: int
) -> None:
    conf.write_text(lines)
    config = built(conf, [])
    assert (config.replication, config.copies_wanted, config.broker_id) == (
        *(replication, copies),
        broker_id,
    )


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("brokerRole=KING", "line 1: brokerRole is 'KING', must be one of ASYNC_MASTER, SYNC_MAS"),
        ("brokerRole=SLAVE", "line 1: brokerRole is 'SLAVE', which needs a brokerId of 1 or more"),
        ("brokerRole=SLAVE\nbrokerId=0", "needs a brokerId of 1 or more"),
        ("brokerId=1", "line 1: brokerId is '1' without a brokerRole, must be 0; a slave has"),
        ("brokerId=1\nbrokerRole=SYNC_MASTER", "brokerId is '1' with brokerRole=SYNC_MASTER"),
        ("haSlaveFallbehindMax=1\nhaMaxGapNotInSync=2", "is given twice"),
    ],
)
def test_a_role_that_contradicts_the_rest_is_refused(conf: Path, lines: str, says: str) -> None:
    conf.write_text(lines)
    (problem,) = read_broker_conf(conf).problems
    assert says in problem


def test_a_synchronous_master_warns_that_it_waits_where_apaches_does_not(conf: Path) -> None:
    conf.write_text("brokerRole=SYNC_MASTER")
    (warning,) = read_broker_conf(conf).warnings
    assert "waits for 2 copies of a message here; RocketMQ 5, where" in warning
    conf.write_text("brokerRole=SYNC_MASTER\ninSyncReplicas=2")
    assert read_broker_conf(conf).warnings == ()


def test_replication_settings_are_applied(conf: Path) -> None:
    conf.write_text(
        "brokerRole=SYNC_MASTER\ninSyncReplicas=3\nminInSyncReplicas=2\nslaveTimeout=1500\n"
        "haSlaveFallbehindMax=1000\nhaMaxGapNotInSync=1000\nhaTransferBatchSize=65536\n"
        "haListenPort=7\nslaveReadEnable=false\n"
    )
    config = built(conf, [])
    assert not config.slave_reads
    assert (config.in_sync_replicas, config.min_in_sync_replicas) == (3, 2)
    assert (config.slave_timeout_s, config.max_slave_gap_bytes) == (1.5, 1000)
    assert (config.ha_chunk_bytes, config.ha_port) == (65536, 7)


@pytest.mark.parametrize("line", PROTECTIONS)
@pytest.mark.parametrize("server", ["broker", "nameserver"])
def test_a_setting_that_protects_is_never_ignored(conf: Path, line: str, server: str) -> None:
    conf.write_text(MASTER + line)
    (problem,) = read_file(conf, server).problems
    key, _, value = line.partition("=")
    assert f"line 9: {key} is {value!r}, but there is no " in problem
    assert "protect the port by other means" in problem


def test_all_problems_of_a_file_are_named_at_once(conf: Path) -> None:
    conf.write_text("brokerRole=KING\naclEnable=true\nfileReservedTime=long\nlistenPort=70000\n")
    with pytest.raises(SettingError) as refused:
        broker_config({"flush": "maybe", "listen": "0.0.0.0"}, read_file(conf))
    lines = str(refused.value).splitlines()
    assert lines[0] == "6 settings cannot be used:"
    for says in ("brokerRole", "aclEnable", "fileReservedTime", "listenPort", "maybe", "0.0.0.0"):
        assert sum(says in line for line in lines) == 1, says


@pytest.mark.parametrize(
    ("old", "setting", "expected"),
    [
        ("mapedFileSizeCommitLog=1048576", "log_file_size", 1_048_576),
        ("mapedFileSizeConsumeQueue=6000", "queue_file_units", 300),
    ],
)
def test_the_spellings_of_older_brokers_are_accepted(
    conf: Path, old: str, setting: str, expected: int
) -> None:
    conf.write_text(old)
    warnings: list[str] = []
    assert getattr(built(conf, warnings).store, setting) == expected
    assert warnings == []
    conf.write_text(f"{old}\n{old.replace('maped', 'mapped')}0")
    (problem,) = read_broker_conf(conf).problems
    assert "is given twice, also as" in problem


@pytest.mark.parametrize(
    ("lines", "ratios"),
    [
        ("diskMaxUsedSpaceRatio=50", (0.5, 0.85, 0.9)),
        ("diskMaxUsedSpaceRatio=75", (0.75, 0.85, 0.9)),
        ("diskMaxUsedSpaceRatio=88", (0.88, 0.928, 0.952)),
        ("diskMaxUsedSpaceRatio=95", (0.95, 0.97, 0.98)),
        ("diskSpaceWarningLevelRatio=80", (0.6667, 0.7556, 0.8)),
        ("diskSpaceCleanForciblyRatio=95", (0.75, 0.95, 0.9667)),
        ("diskMaxUsedSpaceRatio=50\ndiskSpaceWarningLevelRatio=60", (0.5, 0.5667, 0.6)),
    ],
)
def test_a_threshold_of_the_disk_moves_the_others_that_would_contradict_it(
    conf: Path, lines: str, ratios: tuple[float, ...]
) -> None:
    conf.write_text(lines)
    store = built(conf, []).store
    assert (store.clean_ratio, store.force_clean_ratio, store.refuse_ratio) == ratios


def test_thresholds_that_contradict_each_other_as_given_are_refused(conf: Path) -> None:
    conf.write_text("diskMaxUsedSpaceRatio=90\ndiskSpaceWarningLevelRatio=80")
    with pytest.raises(SettingError, match=r"must not fall"):
        built(conf, [])


def test_switched_off_features_are_not_refused(conf: Path) -> None:
    conf.write_text("enableDLegerCommitLog=false\ntransientStorePoolEnable=false\n")
    warnings: list[str] = []
    built(conf, warnings)
    assert warnings == []


@pytest.mark.parametrize(
    ("text", "is_accepted"),
    [
        ("storePathRootDir=/a/b\n{key}=/a/b/{name}", True),
        ("{key}=/a/b/{name}/\nstorePathRootDir=/a/b/", True),
        ("storePathRootDir=/a/b\n{key}=/fast/{name}", False),
        ("{key}=/a/b/{name}", False),
    ],
)
@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("storePathCommitLog", "commitlog"),
        ("storePathConsumeQueue", "consumequeue"),
        ("storePathIndex", "index"),
        ("storeCheckpoint", "checkpoint"),
        ("abortFile", "abort"),
    ],
)
def test_files_in_another_place_are_refused(
    conf: Path, key: str, name: str, text: str, is_accepted: bool
) -> None:
    conf.write_text(text.format(key=key, name=name))
    if is_accepted:
        assert str(built(conf, []).data_dir) == "/a/b"
        return
    (problem,) = read_broker_conf(conf).problems
    assert re.search(rf"{key} is .*, it has to be .*{name}", problem)


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
def test_a_value_that_is_not_a_number_is_refused_with_its_line(conf: Path, line: str) -> None:
    conf.write_text(f"\n{line}\n")
    (problem,) = read_broker_conf(conf).problems
    assert f"line 2: {line.split('=')[0]} is" in problem


def test_every_supported_key_maps_to_a_setting() -> None:
    known = {setting.name for setting in broker_settings()}
    assert {setting for setting, _ in TAKEN.values()} <= known


def test_flush_settings_are_explained_in_the_words_of_broker_conf(conf: Path) -> None:
    conf.write_text("flushDiskType=SOMETIMES\n")
    (problem,) = read_broker_conf(conf).problems
    assert problem.endswith(
        "line 1: flushDiskType is 'SOMETIMES', must be one of ASYNC_FLUSH, SYNC_FLUSH"
    )
    ours = run("broker", "--flush", "sometimes", cwd=conf.parent)
    assert "flag --flush is 'sometimes', must be one of async, sync" in ours.stderr
    for word in ("SYNC_FLUSH", "sync"):
        conf.write_text(f"flushDiskType={word}\n")
        assert not read_broker_conf(conf).problems


def test_a_flag_in_a_broker_conf_is_explained(conf: Path) -> None:
    conf.write_text("insecure=true\n")
    (warning,) = read_broker_conf(conf).warnings
    assert "insecure has no effect, it is a flag of the command, not a setting: start" in warning
