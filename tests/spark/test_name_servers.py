"""Which cluster Spark talks to: the option nameServer, else what the driver's environment says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the spark extra: pip install sparrowmq[spark]")

from pyspark import cloudpickle
from pyspark.sql.types import StructType

import pyspark_rocketmq
from sparrowmq.cluster_address import contexts_file
from sparrowmq.spark.errors import OptionError, RocketMQError
from sparrowmq.spark.log_source import LogSource
from sparrowmq.spark.option_values import find_servers
from sparrowmq.spark.source import RocketMQSource
from sparrowmq.spark.wire.cluster import RemoteCluster
from sparrowmq.testing import Cluster
from tests.spark.admin import create_topic
from tests.spark.topics import fill

NOWHERE = "127.0.0.1:1"
VARIABLES = ("SPARROWMQ_NAME_SERVERS", "SPARROWMQ_CONTEXT", "NAMESRV_ADDR")
BODY = StructType().add("body", "binary")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment that names no cluster."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("options", "environment", "address", "origin"),
    [
        ({"NAMESERVER": "a:1; b:2"}, {"NAMESRV_ADDR": "c:3"}, "a:1;b:2", "option nameServer"),
        (
            {},
            {"SPARROWMQ_NAME_SERVERS": "a:1,b:2", "NAMESRV_ADDR": "c:3"},
            "a:1;b:2",
            "environment variable SPARROWMQ_NAME_SERVERS",
        ),
        ({}, {"NAMESRV_ADDR": "c:3"}, "c:3", "environment variable NAMESRV_ADDR"),
        ({}, {}, "127.0.0.1:9876", "the default"),
    ],
    ids=["the option", "our variable", "RocketMQ's variable", "nothing"],
)
def test_the_option_comes_before_the_environment(
    options: dict[str, str], environment: dict[str, str], address: str, origin: str
) -> None:
    found = find_servers(options, environment)
    assert (";".join(found.addresses), found.origin) == (address, origin)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"SPARROWMQ_NAME_SERVERS": "here"}, "variable SPARROWMQ_NAME_SERVERS has no host:port"),
        ({"SPARROWMQ_NAME_SERVERS": ";"}, "variable SPARROWMQ_NAME_SERVERS is ';'"),
        ({"SPARROWMQ_CONTEXT": "gone"}, "names the context 'gone', which is not in"),
    ],
)
def test_an_environment_that_names_no_cluster_is_refused(
    environment: dict[str, str], said: str
) -> None:
    with pytest.raises(OptionError, match="option nameServer: missing, and") as caught:
        find_servers({}, environment)
    assert said in str(caught.value)


def travelled(value: Any) -> Any:
    """As Spark takes it from the driver to an executor."""
    data: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]  # pyspark's copy
    return cloudpickle.loads(data)


def source(**options: str) -> RocketMQSource:
    """A source as another planning process gets it, whose environment may differ by then."""
    made: RocketMQSource = travelled(RocketMQSource(options))
    return made


def test_a_batch_read_uses_the_drivers_addresses_and_not_the_executors_environment(
    running: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = fill(running, topic, 5)
    monkeypatch.setenv("SPARROWMQ_NAME_SERVERS", running.name_server)
    made = source(subscribe=topic, columns="body", retryTimeout="1ms")
    monkeypatch.setenv("SPARROWMQ_NAME_SERVERS", NOWHERE)
    reader = travelled(made.reader(made.schema()))
    read = [
        row["body"]
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]
    assert sorted(read) == sent


def test_a_stream_uses_the_drivers_addresses(
    running: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(running, topic, 1)
    monkeypatch.setenv("NAMESRV_ADDR", running.name_server)
    made = source(subscribe=topic, retryTimeout="1ms")
    monkeypatch.setenv("NAMESRV_ADDR", NOWHERE)
    reader = travelled(made.streamReader(made.schema()))
    try:
        assert topic in reader.initialOffset()
    finally:
        reader.stop()


@pytest.mark.parametrize("is_stream", [False, True], ids=["batch", "stream"])
def test_a_sink_uses_the_drivers_addresses(
    running: Cluster, monkeypatch: pytest.MonkeyPatch, is_stream: bool
) -> None:
    topic = "name-servers-sink"
    create_topic(running, topic, 1)
    monkeypatch.setenv("SPARROWMQ_NAME_SERVERS", running.name_server)
    made = source(topic=topic, retryTimeout="1ms")
    monkeypatch.setenv("SPARROWMQ_NAME_SERVERS", NOWHERE)
    writer = travelled((made.streamWriter if is_stream else made.writer)(BODY, False))
    with writer.options.cluster() as cluster:
        assert [queue.topic for queue in cluster.queues(topic)] == [topic]


def test_a_cluster_that_does_not_answer_is_reported_with_where_its_address_came_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", NOWHERE)
    made = source(subscribe="orders", retryTimeout="1ms")
    where = rf"{NOWHERE} \(environment variable NAMESRV_ADDR\): "
    with pytest.raises(RocketMQError, match=where):
        made.reader(made.schema()).partitions()
    with pytest.raises(RocketMQError, match=where):
        source(topic="orders", retryTimeout="1ms").writer(BODY, False)
    with pytest.raises(RocketMQError, match=rf"{NOWHERE} \(option nameServer\): "):
        source(topic="orders", retryTimeout="1ms", nameServer=NOWHERE).writer(BODY, False)


def test_a_missing_topic_is_reported_with_the_cluster_that_was_asked(
    running: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARROWMQ_NAME_SERVERS", running.name_server)
    made = source(subscribe="nowhere-at-all")
    with pytest.raises(RocketMQError, match="variable SPARROWMQ_NAME_SERVERS"):
        made.reader(made.schema()).partitions()


def test_a_cluster_keeps_its_origin_on_the_way_to_executors() -> None:
    assert str(travelled(RemoteCluster("a:1", origin="the default"))) == "a:1 (the default)"


def name_in_contexts(address: str) -> None:
    """Let the context `production` name this name server."""
    path = contexts_file()
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'[contexts.production]\nname-servers = ["{address}"]\n')


def test_a_stream_that_writes_keeps_its_cluster_when_the_contexts_file_is_edited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARROWMQ_CONTEXT", "production")
    name_in_contexts("first:9876")
    found_by_spark = travelled(pyspark_rocketmq.DefaultSource)
    # Spark creates a source for every micro-batch.
    before = found_by_spark({"topic": "orders"}).streamWriter(BODY, False)
    name_in_contexts("second:9876")
    after = found_by_spark({"topic": "orders"}).streamWriter(BODY, False)
    assert (before.options.name_server, after.options.name_server) == ("first:9876",) * 2
    given = found_by_spark({"topic": "orders", "nameServer": "third:9876"})
    assert given.streamWriter(BODY, False).options.name_server == "third:9876"
    anew = travelled(pyspark_rocketmq.DefaultSource)({"topic": "orders"})
    assert anew.streamWriter(BODY, False).options.name_server == "second:9876"


def test_a_driver_that_found_no_cluster_keeps_reporting_it_until_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARROWMQ_CONTEXT", "production")
    found_by_spark = travelled(pyspark_rocketmq.DefaultSource)
    name_in_contexts("late:9876")
    with pytest.raises(OptionError, match=r"'production', which is not in .* start Spark's driver"):
        found_by_spark({"topic": "orders"})
    given = found_by_spark({"topic": "orders", "nameServer": "third:9876"})
    assert given.streamWriter(BODY, False).options.name_server == "third:9876"


def test_log_files_need_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "commitlog").mkdir()
    monkeypatch.setenv("SPARROWMQ_CONTEXT", "gone")
    made = LogSource({"path": str(tmp_path)})
    assert len(made.reader(made.schema()).partitions()) == 1
