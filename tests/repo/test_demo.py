"""The first steps of a newcomer work: the demo, and the example of the README as printed."""

import re
import signal
import subprocess
import sys
import urllib.request

import pytest

from sparrowmq.testing import Cluster
from tests.patience import PATIENCE_S, PATIENT
from tests.repo.tree import ROOT
from tools.demo import Orders, conclude


def test_the_demo_finds_every_order_and_succeeds() -> None:
    demo = [sys.executable, "-m", "tools.demo", "--messages", "200", "--without-spark"]
    done = subprocess.run(demo, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "200 sent, 200 consumed, 0 missing, 0 damaged" in done.stdout


@pytest.mark.slow
def test_the_demo_stays_with_its_console_until_it_is_interrupted() -> None:
    demo = [sys.executable, "-u", "-m", "tools.demo", "--messages", "100", "--without-spark"]
    with subprocess.Popen(
        [*demo, "--stay"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout is not None
            printed = []
            for line in process.stdout:
                printed.append(line)
                if "The console stays open" in line:
                    break
            found = re.search(r"stays open at (http://127\.0\.0\.1:\d+/)", printed[-1])
            assert found is not None, "".join(printed)
            with urllib.request.urlopen(f"{found[1]}topics/orders", timeout=PATIENCE_S) as page:
                assert "Topic orders" in re.sub(r"<[^>]*>\s*", "", page.read().decode())
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 0, "".join(printed) + rest
    assert "Nothing is missing" in "".join(printed)
    with pytest.raises(OSError):
        urllib.request.urlopen(found[1], timeout=PATIENCE_S)


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
