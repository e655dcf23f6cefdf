"""A Kafka server of one node on loopback, from its Maven jars, and Spark's connector for it."""

import hashlib
import subprocess
from pathlib import Path

from sparrowmq.testing.held_port import HeldPort
from tests.interop.cluster import Server, accepts, wait_until
from tests.interop.toolchain import ToolMissing, cache

POM = Path(__file__).parent / "java" / "kafka" / "pom.xml"
CONNECTOR = "spark-sql-kafka 4.2.0"
PARTITIONS = 8
_START_S = 120.0
_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"


def jars(profile: str) -> Path:
    """The jars of `server` or `connector`. Raises ToolMissing where Maven cannot get them."""
    digest = hashlib.sha256(POM.read_bytes()).hexdigest()[:12]
    target = cache() / f"kafka-{profile}-{digest}"
    if not (target / ".complete").exists():
        target.mkdir(parents=True, exist_ok=True)
        command = ["mvn", "-B", "-q", "-f", str(POM), "-P", profile]
        command += ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        command.append(f"-DoutputDirectory={target}")
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
        if done.returncode != 0:
            tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
            raise ToolMissing(f"Maven cannot resolve Kafka's {profile} jars\n{tail}")
        (target / ".complete").touch()
    return target


def connector_jars() -> str:
    """For `spark.jars`."""
    return ",".join(str(path) for path in sorted(jars("connector").glob("*.jar")))


class Kafka:
    """A running server; `address` is where clients go."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._held = (HeldPort(), HeldPort())
        self.address, controller = (held.address for held in self._held)
        settings = folder / "server.properties"
        settings.write_text(self._settings(folder, controller))
        java = ["java", "-Xms512m", "-Xmx1g", "-cp", f"{jars('server')}/*"]
        made = subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(settings)],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode != 0:
            raise ToolMissing(f"Kafka's storage cannot be made: {made.stderr[-2000:]}")
        self._server = Server([*java, "kafka.Kafka", str(settings)], folder / "kafka.out")
        wait_until(lambda: accepts(self.address), "Kafka listens", folder, _START_S)

    @property
    def pids(self) -> list[int]:
        """Its process."""
        return [self._server.pid]

    def close(self) -> None:
        """End it, by its own pid."""
        self._server.stop()
        for held in self._held:
            held.close()

    def _settings(self, folder: Path, controller: str) -> str:
        pairs = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(folder / "data"),
            "num.partitions": str(PARTITIONS),
            "offsets.topic.replication.factor": "1",
        }
        return "".join(f"{name}={value}\n" for name, value in pairs.items())
