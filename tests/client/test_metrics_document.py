"""The examples of docs/metrics.md run as they are pasted."""

import json
import re
import subprocess
import sys
from pathlib import Path

from sparrowmq.testing import Cluster
from tests.patience import PATIENT

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "metrics.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def test_the_examples_run_as_pasted(sparrowmq_cluster: Cluster) -> None:
    printed = []
    for example in EXAMPLES:
        program = PATIENT + example.replace("127.0.0.1:9876", sparrowmq_cluster.name_server)
        run = subprocess.run(
            [sys.executable, "-W", "error", "-c", program], cwd=ROOT, capture_output=True, text=True
        )
        assert run.returncode == 0, f"{example}\n{run.stderr}"
        printed.append(run.stdout or run.stderr)
    metrics, logs, spans = printed
    assert (
        'rocketmq_send_cost_time_count{invocation_status="success",topic="orders"} 1.0' in metrics
    )
    line = json.loads(logs.splitlines()[-1])
    assert (line["level"], line["logger"]) == ("info", "orders-svc")
    assert line["message"].startswith("order sent as ")
    for name in ("send", "receive", "process"):
        assert f'"name": "{name} traced-orders"' in spans
