"""Builds the peers once, into a cache outside the repository: jars, classes, the Go driver."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent
CLIENTS = ("java5", "java4", "go", "python", "raw")
"""Peers; python is our own client, raw this process itself, writing single requests by hand."""
APACHE_VERSION = "5.5.0"

# Netty and the store reach into the JDK; Java 17 refuses that without these flags.
JVM_FLAGS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
# No machine here lives long enough to earn what its second compiler costs. bench has its own flags.
SHORT_LIVED = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class ToolMissing(Exception):
    """Something the peers need is not on this machine; the text says what and how to get it."""


def cache() -> Path:
    """Where everything that is downloaded or built goes."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "sparrowmq" / "interop"


def missing_tools(clients: Iterable[str], *, apache: bool) -> list[str]:
    """What has to be installed before these clients (and Apache's servers) can run."""
    missing = []
    if apache or any(client.startswith("java") for client in clients):
        if shutil.which("javac") is None:
            missing.append(
                "a JDK, 11 or newer (Debian, Ubuntu: apt-get install default-jdk-headless)"
            )
        if shutil.which("mvn") is None:
            missing.append("Maven (Debian, Ubuntu: apt-get install maven)")
    if "go" in clients and shutil.which("go") is None:
        missing.append("Go, 1.21 or newer (https://go.dev/doc/install)")
    return missing


def prepare(clients: Iterable[str], *, apache: bool) -> None:
    """Build everything that these clients need, before anything is timed; raises ToolMissing."""
    for client in clients:
        if client.startswith("java"):
            java_classpath(client)
            jars("broker4" if client == "java4" else client)
        elif client == "go":
            go_driver()
    if apache:
        jars("java5")


def jars(profile: str) -> Path:
    """The directory with one profile's jars; raises ToolMissing where Maven cannot get them."""
    pom = HERE / "java" / "pom.xml"
    target = cache() / f"lib-{profile}-{_digest([pom])}"
    if not (target / ".complete").exists():
        target.mkdir(parents=True, exist_ok=True)
        goal = "dependency:copy-dependencies"
        options = ["-DincludeScope=runtime", f"-DoutputDirectory={target}"]
        _build(
            ["mvn", "-B", "-q", "-f", str(pom), "-P", profile, goal, *options],
            f"Maven cannot resolve the jars of {profile}; it needs a registry with Maven Central's "
            "artifacts (configure it in ~/.m2/settings.xml)",
        )
        # Written last, so that a broken download is tried again.
        (target / ".complete").touch()
    return target


def java_classpath(client: str) -> str:
    """The class path of one Java driver, compiled if its sources changed."""
    lib = jars(client)
    folders = [HERE / "java" / "common"] + ([HERE / "java" / "v5"] if client == "java5" else [])
    sources = sorted(source for folder in folders for source in folder.rglob("*.java"))
    resources = sorted(resource for folder in folders for resource in folder.glob("*.xml"))
    classes = cache() / f"classes-{client}-{_digest([*sources, *resources])}"
    if not (classes / ".complete").exists():
        classes.mkdir(parents=True, exist_ok=True)
        command = ["javac", "-nowarn", "-encoding", "UTF-8", "-d", str(classes), "-cp", f"{lib}/*"]
        _build([*command, *map(str, sources)], f"the {client} driver does not compile")
        for resource in resources:
            shutil.copy(resource, classes)
        (classes / ".complete").touch()
    return f"{classes}:{lib}/*"


def go_driver() -> Path:
    """The Go driver, built if its sources changed; raises ToolMissing without its modules."""
    folder = HERE / "go"
    driver = cache() / f"go-{_digest(sorted(folder.iterdir()))}"
    if not driver.exists():
        driver.parent.mkdir(parents=True, exist_ok=True)
        _build(
            ["go", "build", "-mod=readonly", "-o", str(driver), "."],
            "the Go driver does not build; its modules come through GOPROXY",
            folder,
        )
    return driver


def java_command(classpath: str, home: Path, heap: str, main: str, *args: str) -> list[str]:
    """A command line for one Java process whose logs and state stay under `home`."""
    # The machine's own warnings go to standard output otherwise, among the answers of a driver.
    logs = ["-Xlog:disable", "-Xlog:all=warning:stderr"]
    # Without memory a driver's own thread dies and its clients' threads live on: no answers come.
    flags = ["-Xms64m", f"-Xmx{heap}", "-XX:+ExitOnOutOfMemoryError"]
    flags += [*SHORT_LIVED, *logs, *JVM_FLAGS]
    flags.append(f"-Duser.home={home}")
    return ["java", *flags, "-Drocketmq.client.logLevel=WARN", "-cp", classpath, main, *args]


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def _build(command: list[str], failure: str, folder: Path | None = None) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        raise ToolMissing(f"{failure}\n{tail}")
