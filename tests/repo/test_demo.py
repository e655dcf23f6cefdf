"""The first steps of a newcomer work: the demo, and the example of the README as printed."""

import re
import subprocess
import sys

import pytest

from sparrowmq.testing import Cluster
from tests.patience import PATIENT
from tests.repo.tree import ROOT
from tools.demo import Orders, conclude


def test_the_demo_finds_every_order_and_succeeds() -> None:
    demo = [sys.executable, "-m", "tools.demo", "--messages", "200", "--without-spark"]
    done = subprocess.run(demo, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "200 sent, 200 consumed, 0 missing, 0 damaged" in done.stdout


@pytest.mark.parametrize("received", [{"o-0-created": ["one"]}, {}])
def test_the_demo_fails_when_an_order_is_missing(received: dict[str, list[str]]) -> None:
    orders = Orders()
    for _ in range(2):
        orders.next_message()
    orders.received = received
    assert conclude(orders) == 1


def test_the_demo_fails_when_an_order_is_damaged() -> None:
    orders = Orders()
    orders.next_message()
    orders.received, orders.damaged = {"o-0-created": ["one"]}, ["o-0"]
    assert conclude(orders) == 1


def test_the_example_of_the_readme_runs_as_pasted(sparrowmq_cluster: Cluster) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    code = example.replace("127.0.0.1:9876", sparrowmq_cluster.name_server)
    assert code != example
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PATIENT + code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "SEND_OK" in done.stdout
    assert "one sparrow" in done.stdout
