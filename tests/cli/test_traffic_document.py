"""docs/traffic.md: its commands and programs run as pasted, in their order, in one cluster."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sparrowmq.testing import Cluster
from tests.cli.in_process import run
from tests.patience import PATIENT

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "traffic.md").read_text("utf-8")
SAYS = {
    "A consumer's rate": "",
    "Quotas": "topic orders 2000 0\n",
    "A largest backlog": "topic\tpayments\t600 s behind: slow (ledger)",
    "A topic for what is refused": "{'orders': ",
    "De-duplication": "sparrowmq.dedup\tbroker-a\ton\t30m/200000",
    "Brokers that come and go": "broker-a is drained: it can be stopped",
}
"""What each section prints."""


@pytest.mark.sparrowmq(brokers=2)
def test_the_page_runs_as_pasted(
    sparrowmq_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = sparrowmq_cluster.name_server
    monkeypatch.setenv("SPARROWMQ_NAME_SERVERS", servers)
    sections = [each.partition("\n") for each in TEXT.split("\n## ")[1:]]
    assert [title for title, _, _ in sections] == list(SAYS)
    for title, _, section in sections:
        printed = ""
        for language, block in re.findall(r"^```(\w+)\n(.*?)^```", section, re.M | re.S):
            printed += _commands(block) if language == "sh" else _program(block, servers)
        assert SAYS[title] in printed


def _commands(block: str) -> str:
    printed = ""
    for line in block.splitlines():
        words = shlex.split(line.removeprefix("sparrowmq "))
        if words[:2] == ["broker", "drain"]:
            words += ["--grace", "0s"]  # the producers have ended
        ended = run(*words)
        assert ended.returncode == 0, f"{line}\n{ended.stderr}"
        printed += ended.stdout + ended.stderr
    return printed


def _program(block: str, servers: str) -> str:
    text = PATIENT + block.replace("127.0.0.1:9876", servers)
    command = [sys.executable, "-W", "error", "-c", text]
    made = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return made.stdout
