"""docs/admin.md: its examples run as pasted, one after the other, and use only existing names."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sparrowmq
from sparrowmq import Admin
from sparrowmq.testing import Cluster
from tests.patience import PATIENT

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "admin.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def test_the_examples_run_as_pasted(sparrowmq_cluster: Cluster) -> None:
    servers = sparrowmq_cluster.name_server
    environment = {**os.environ, "SPARROWMQ_NAME_SERVERS": servers}
    printed = []
    for example in (each.replace("127.0.0.1:9876", servers) for each in EXAMPLES):
        program = [sys.executable, "-W", "error", "-c", PATIENT + example]
        run = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert run.returncode == 0, f"{example}\n{run.stderr}"
        printed.append(run.stdout)
    first, lag, moved, found, changed, partial = printed
    assert first == "broker-a master V5_3_3\n0 messages in 8 queues\n"
    assert lag.startswith("0 messages are waiting\nbroker-a 0 0 no owner\n")
    assert moved.count("None → 0 0 again") == 8
    assert found.startswith("b'one sparrow'\n")
    assert "message broker-a/0/1000000000 does not exist; that queue of topic orders" in found
    assert changed == "broker-a: write_queues 8 → 16\n[3] False\n"
    assert re.fullmatch(r"\d+ groups\n", partial)


def test_every_method_is_listed() -> None:
    public = {name for name in vars(Admin) if not name.startswith("_")} - {"start", "stop"}
    listed = TEXT[TEXT.index("## All methods") :]
    assert set(re.findall(r"`(\w+)\(", listed)) == public


LISTED = re.findall(
    r"`(\w+)\((.*?)\)`", TEXT[TEXT.index("## All methods") : TEXT.index("Notes on arguments")]
)


@pytest.mark.parametrize(("name", "given"), LISTED)
def test_a_method_is_listed_with_the_arguments_that_it_needs(name: str, given: str) -> None:
    _, *taken = inspect.signature(getattr(Admin, name)).parameters.values()
    needed = [
        f"{each.name}=…" if each.kind is each.KEYWORD_ONLY else each.name
        for each in taken
        if each.default is each.empty
    ]
    assert given == ", ".join([*needed, "…"] if len(needed) < len(taken) else needed)


@pytest.mark.parametrize("name", re.findall(r"`([A-Z]\w+[a-z])`", TEXT))
def test_a_class_that_is_named_exists(name: str) -> None:
    assert name in sparrowmq.__all__ or name == "ValueError"
