"""Apache's own name server and broker as a target."""

from collections.abc import Mapping
from pathlib import Path

from tests.interop import toolchain
from tests.interop.cluster import BROKER_NAME, Cluster, Server, Settings

NAME = "apache"
CAPABILITIES = frozenset(
    {"core", "admin", "retry", "delay", "transactions", "sql92", "request-reply", "statistics"}
    | {"reset", "restart"}
)
# Release 4.9 does not start without this file; its log goes to the process's output.
_LOGBACK = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %p %logger %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="out"/></root>
</configuration>
"""


def start(folder: Path, settings: Settings, name_server: str | None = None) -> Cluster:
    """Start Apache's broker, and its name server unless another is given."""
    return Cluster(NAME, folder, start_name_server, start_broker, settings, name_server=name_server)


def start_name_server(folder: Path, address: str) -> Server:
    """Apache's name server at a loopback address."""
    port = address.rsplit(":", 1)[1]
    folder.mkdir(parents=True, exist_ok=True)
    conf = folder / "namesrv.properties"
    conf.write_text(f"listenPort={port}\nbindAddress=127.0.0.1\n")
    return _java(folder, "256m", "org.apache.rocketmq.namesrv.NamesrvStartup", conf)


def start_broker(cluster: Cluster) -> Server:
    """Apache's broker on the cluster's port and store directory."""
    conf = write_conf(cluster)
    return run_broker(cluster.folder, conf)


def run_broker(folder: Path, conf: Path, release: str = "java5", heap: str = "1g") -> Server:
    """Apache's broker with a broker.conf; `release` names the Maven profile of its jars."""
    return _java(folder, heap, "org.apache.rocketmq.broker.BrokerStartup", conf, release)


def write_conf(cluster: Cluster) -> Path:
    """The broker.conf of a cluster's broker; SparrowMQ reads the same file."""
    wanted = dict(cluster.settings.properties)
    wanted.setdefault("autoCreateTopicEnable", str(cluster.settings.auto_create_topics).lower())
    conf = cluster.folder / "broker.conf"
    conf.write_text(broker_conf(cluster.name_server, cluster.broker_port, cluster.store, wanted))
    return conf


def broker_conf(name_server: str, port: int, store: Path, properties: Mapping[str, str]) -> str:
    """The broker.conf of a small loopback broker, with these properties changed or added."""
    pairs = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": BROKER_NAME,
        "brokerId": "0",
        "brokerRole": "ASYNC_MASTER",
        "flushDiskType": "ASYNC_FLUSH",
        "namesrvAddr": name_server,
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "listenPort": str(port),
        "haListenPort": str(port + 1),
        "autoCreateSubscriptionGroup": "true",
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
        # Small files: the default gigabyte per log file is of no use here.
        "mappedFileSizeCommitLog": str(64 * 1024 * 1024),
        "enablePropertyFilter": "true",
        # Two cores carry three clients, their JVMs and a broker: late is not busy here.
        "waitTimeMillsInSendQueue": "5000",
    }
    pairs |= properties
    return "".join(f"{name}={value}\n" for name, value in pairs.items())


def _java(folder: Path, heap: str, main: str, conf: Path, release: str = "java5") -> Server:
    home = folder / "home"
    (home / "conf").mkdir(parents=True, exist_ok=True)
    (home / "conf" / "logback_broker.xml").write_text(_LOGBACK)
    classpath = f"{toolchain.jars(release)}/*"
    command = toolchain.java_command(classpath, folder, heap, main, "-c", str(conf))
    output = folder / f"{conf.stem}.out"
    return Server(command, output, {"ROCKETMQ_HOME": str(home)})
