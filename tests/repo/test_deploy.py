"""Files in deploy/: systemd accepts the units, sparrowmq accepts their settings and commands."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sparrowmq.testing import Cluster
from tests.repo.tree import ROOT

DEPLOY = ROOT / "deploy"
SPARROWMQ = Path(sys.executable).with_name("sparrowmq")
# Another user may not be allowed to read this interpreter; root without any capability is as weak.
WITHOUT_PRIVILEGES = ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
UNITS = sorted(DEPLOY.glob("*.service"))


def command_of(unit: Path) -> list[str]:
    """What a unit runs, with the paths of this machine."""
    (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    here = {
        "/usr/local/lib/sparrowmq/bin/sparrowmq": str(SPARROWMQ),
        "/etc/sparrowmq/sparrowmq.toml": str(DEPLOY / "sparrowmq.toml"),
    }
    return [here.get(word, word) for word in line.split()]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_units(unit: Path, tmp_path: Path) -> None:
    here = tmp_path / unit.name
    here.write_text(
        re.sub(r"^ExecStart=\S+", f"ExecStart={SPARROWMQ}", unit.read_text(), flags=re.MULTILINE)
    )
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(here)],
        capture_output=True,
        text=True,
        check=False,
    )
    about_unit = [line for line in done.stderr.splitlines() if unit.name in line]
    assert not about_unit, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
@pytest.mark.skipif(
    os.getuid() == 0 and shutil.which("setpriv") is None,
    reason="needs setpriv to drop root's rights",
)
def test_the_server_of_a_unit_needs_no_privileges(unit: Path, tmp_path: Path) -> None:
    server = unit.stem.removeprefix("sparrowmq-")
    # A name server that runs on this machine must not learn of it: it may know a broker-a already.
    nowhere = ["--name-servers", "127.0.0.1:1"]
    state = ["--data", str(tmp_path / "broker"), *nowhere] if server == "broker" else []
    if server == "nameserver":
        state = ["--kv-config-path", str(tmp_path / "kvConfig.json")]
    drop = WITHOUT_PRIVILEGES if os.getuid() == 0 else []
    running = subprocess.Popen(
        [*drop, *command_of(unit), "--json", "--port", "0", *state],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd="/",
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
    )
    assert running.stdout is not None
    said = next((line for line in running.stdout if line.startswith("sparrowmq ready")), "")
    running.send_signal(signal.SIGTERM)
    rest, _ = running.communicate(timeout=60)
    assert said, rest
    assert running.returncode == 0, rest


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_wrong_settings_are_not_tried_again_and_again(unit: Path) -> None:
    refused = subprocess.run(
        [*command_of(unit), "--port", "none"], capture_output=True, text=True, check=False
    )
    assert f"RestartPreventExitStatus={refused.returncode}\n" in unit.read_text(), refused.stderr


def health_check(*, name_server: str) -> subprocess.CompletedProcess[str]:
    """What the container runs to find out whether it is healthy."""
    text = (DEPLOY / "Containerfile").read_text()
    (command,) = re.findall(r"^HEALTHCHECK [^[]*CMD (\[.*\])$", text, re.MULTILINE)
    _, *arguments = json.loads(command)
    return subprocess.run(
        [str(SPARROWMQ), *arguments],
        env={"PATH": os.environ["PATH"], "SPARROWMQ_NAME_SERVERS": name_server},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.sparrowmq(auto_create_topic=False)
def test_the_container_is_healthy_while_its_broker_is_registered(
    sparrowmq_cluster: Cluster,
) -> None:
    name_server = sparrowmq_cluster.name_server
    healthy = health_check(name_server=name_server)
    assert healthy.returncode == 0, healthy.stderr
    (broker,) = sparrowmq_cluster.broker_addresses
    sparrowmq_cluster.stop_broker(broker)
    assert health_check(name_server=name_server).returncode == 1
    assert health_check(name_server="127.0.0.1:1").returncode == 1


def test_the_container_runs_a_valid_command_as_an_unprivileged_user() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    words = [line.partition(" ")[::2] for line in text.splitlines() if line[:1].isupper()]
    last = dict(words)
    assert last["USER"] == "sparrowmq"
    assert f"useradd --system --uid 10001 --no-create-home {last['USER']}" in text
    assert json.loads(last["ENTRYPOINT"])[0].endswith("/sparrowmq")
    checked = subprocess.run(
        [str(SPARROWMQ), *json.loads(last["CMD"]), "--help-all"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    for flag in re.findall(r"--[a-z-]+", last["CMD"]):
        assert flag in checked.stdout
