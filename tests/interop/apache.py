"""Apache's own name server and broker as a target."""

from pathlib import Path

from tests.interop import toolchain
from tests.interop.cluster import BROKER_NAME, Cluster, Server, Settings

NAME = "apache"
CAPABILITIES = frozenset(
    {"core", "admin", "retry", "delay", "transactions", "sql92", "request-reply", "statistics"}
    | {"reset", "restart"}
)


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
    conf = cluster.folder / "broker.conf"
    conf.write_text(broker_conf(cluster))
    return _java(cluster.folder, "1g", "org.apache.rocketmq.broker.BrokerStartup", conf)


def broker_conf(cluster: Cluster) -> str:
    """The broker.conf of a small loopback broker; SparrowMQ reads the same file."""
    auto_create = "true" if cluster.settings.auto_create_topics else "false"
    pairs = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": BROKER_NAME,
        "brokerId": "0",
        "brokerRole": "ASYNC_MASTER",
        "flushDiskType": "ASYNC_FLUSH",
        "namesrvAddr": cluster.name_server,
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "listenPort": str(cluster.broker_port),
        "haListenPort": str(cluster.broker_port + 1),
        "autoCreateTopicEnable": auto_create,
        "autoCreateSubscriptionGroup": "true",
        "storePathRootDir": str(cluster.store),
        "storePathCommitLog": str(cluster.store / "commitlog"),
        # Small files: the default gigabyte per log file is of no use here.
        "mappedFileSizeCommitLog": str(64 * 1024 * 1024),
        "enablePropertyFilter": "true",
        # Two cores carry three clients, their JVMs and a broker: late is not busy here.
        "waitTimeMillsInSendQueue": "5000",
    }
    pairs |= dict(cluster.settings.properties)
    return "".join(f"{name}={value}\n" for name, value in pairs.items())


def _java(folder: Path, heap: str, main: str, conf: Path) -> Server:
    home = folder / "home"
    (home / "conf").mkdir(parents=True, exist_ok=True)
    classpath = f"{toolchain.jars('java5')}/*"
    command = toolchain.java_command(classpath, folder, heap, main, "-c", str(conf))
    output = folder / f"{conf.stem}.out"
    return Server(command, output, {"ROCKETMQ_HOME": str(home)})
