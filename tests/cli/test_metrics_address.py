"""The address of the monitoring pages: the ready line names it, and they answer there."""

import re
from pathlib import Path
from urllib.request import urlopen

from tests.cli.servers import sparrowmq, stop, up
from tests.patience import PATIENCE_S


def test_the_ready_line_names_the_metrics_address_which_answers(tmp_path: Path) -> None:
    with up(tmp_path) as running:
        found = re.search(r", metrics (http://127\.0\.0\.1:\d+)/metrics$", running.ready.strip())
        assert found is not None, running.ready
        for path, words in (("/metrics", b"sparrowmq_ready"), ("/readyz", b"ready\n")):
            with urlopen(found.group(1) + path, timeout=PATIENCE_S) as answer:
                assert words in answer.read()
        code, logged = stop(running)
    assert code == 0
    assert logged.count("metrics at http://127.0.0.1:") == 2  # the name server's too


def test_several_brokers_have_a_page_each(tmp_path: Path) -> None:
    with up(tmp_path, "--brokers", "2") as running:
        pages = re.findall(r"http://127\.0\.0\.1:\d+/metrics", running.ready)
        assert len(set(pages)) == 2, running.ready
        for page, name in zip(pages, (b"broker-a", b"broker-b"), strict=True):
            with urlopen(page, timeout=PATIENCE_S) as answer:
                assert b'node_id="%s"' % name in answer.read()
        assert stop(running)[0] == 0


def test_an_address_of_another_machine_is_refused_with_an_explanation(tmp_path: Path) -> None:
    refused = sparrowmq(
        *("broker", "--data", str(tmp_path), "--port", "0", "--insecure"),
        *("--metrics-listen", "192.0.2.1"),
    )
    assert refused.returncode == 1
    assert "192.0.2.1" in refused.stderr
    assert "must be an address of this machine" in refused.stderr


def test_minus_one_leaves_them_out(tmp_path: Path) -> None:
    off = ("--metrics-port", "-1", "--nameserver-metrics-port", "-1")
    with up(tmp_path, *off) as running:
        assert "metrics" not in running.ready
        _, logged = stop(running)
    assert "metrics" not in logged
