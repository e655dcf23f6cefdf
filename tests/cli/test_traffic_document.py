"""docs/traffic.md: its commands and programs run as pasted."""

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


def blocks(title: str, language: str) -> list[str]:
    section = TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("title", "listed", "says"),
    [
        ("A consumer's rate", "", ""),
        ("Quotas", "topic\torders\t1000 messages/s", "topic orders 1000 0\n"),
        ("A largest backlog", "topic\tpayments\t600 s behind: slow (ledger)", ""),
        ("A topic for what is refused", "quota.messages\tbroker-a\t\t100", "{'orders': "),
    ],
)
def test_a_section_runs_as_pasted(
    title: str, listed: str, says: str, sparrowmq_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = sparrowmq_cluster.name_server
    monkeypatch.setenv("SPARROWMQ_NAME_SERVERS", servers)
    printed = ""
    for block in blocks(title, "sh"):
        for line in block.splitlines():
            ended = run(*shlex.split(line.removeprefix("sparrowmq ")))
            assert ended.returncode == 0, f"{line}\n{ended.stderr}"
            printed += ended.stdout
    assert listed in printed
    said = ""
    for program in blocks(title, "python"):
        text = PATIENT + program.replace("127.0.0.1:9876", servers)
        command = [sys.executable, "-W", "error", "-c", text]
        made = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        said += made.stdout
    assert says in said
