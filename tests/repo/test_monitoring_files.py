"""Dashboard, alerts and guide: every metric that they name exists, and the guide has them all."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from sparrowmq.metrics.families import BROKER_FAMILIES, NAME_SERVER_FAMILIES, Family, Kind
from tests.repo.tree import ROOT

MONITORING = ROOT / "deploy" / "monitoring"
GUIDE = ROOT / "docs" / "metrics.md"
FAMILIES = sorted({*BROKER_FAMILIES, *NAME_SERVER_FAMILIES}, key=lambda family: family.name)
NAMED = re.compile(r"\b(?:rocketmq|sparrowmq)_[a-z_]+\b")
OF_CLIENTS = {
    *("rocketmq_send_cost_time", "rocketmq_process_time"),
    *("sparrowmq_client_messages_handled_total", "sparrowmq_client_handlers_running"),
    "sparrowmq_client_messages_diverted_total",
    *("sparrowmq_spark_rows_read_total", "sparrowmq_spark_rows_written_total"),
    *("sparrowmq_spark_batches_total", "sparrowmq_spark_batch_seconds"),
    "sparrowmq_spark_query_running",
}


def samples(family: Family) -> Iterator[str]:
    """The names of its lines."""
    for name in family.names:
        yield name
        if family.kind is Kind.HISTOGRAM:
            yield from (f"{name}_bucket", f"{name}_count", f"{name}_sum")


EXISTING = {name for family in FAMILIES for name in samples(family)} | OF_CLIENTS


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((MONITORING / "grafana-dashboard.json").read_text("utf-8"))
    return found


@pytest.mark.parametrize("name", ["grafana-dashboard.json", "alerts.yml"])
def test_every_metric_in_a_file_exists(name: str) -> None:
    named = set(NAMED.findall((MONITORING / name).read_text("utf-8")))
    assert len(named) > 5
    assert named <= EXISTING


def test_the_panels_of_the_dashboard_have_a_title_a_query_and_a_place_of_their_own() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)
    for panel in panels:
        assert panel["title"]
        assert panel["type"] == "row" or all(NAMED.search(t["expr"]) for t in panel["targets"])


def test_labels_in_queries_are_those_of_their_metric() -> None:
    labels = {name: set(family.labels) for family in FAMILIES for name in samples(family)}
    common = {"cluster", "node_id", "node_type", "le"}
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            for name, chosen in re.findall(
                r"((?:rocketmq|sparrowmq)_\w+)\{(.*?)\}", target["expr"]
            ):
                assert set(re.findall(r"(\w+)=", chosen)) <= labels[name] | common


def test_an_alert_says_what_is_wrong_and_what_to_do() -> None:
    text = (MONITORING / "alerts.yml").read_text("utf-8")
    alerts = text.split("- alert: ")[1:]
    names = [alert.splitlines()[0] for alert in alerts]
    assert len(set(names)) == len(names) >= 10
    for alert in alerts:
        for key in ("expr:", "labels:", "summary:", "description:"):
            assert key in alert, (key, alert)


def test_the_guide_describes_every_metric_and_no_other() -> None:
    text = GUIDE.read_text("utf-8")
    named = set(NAMED.findall(text))
    assert {family.name for family in FAMILIES} <= named
    assert named - EXISTING <= {"rocketmq_pop_", "sparrowmq_cluster", "rocketmq_"}
