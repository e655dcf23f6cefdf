"""Dashboard, alerts and guide: every metric that they name exists, and the guide has them all."""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from sparrowmq.metrics.families import BROKER_FAMILIES, NAME_SERVER_FAMILIES, Family, MetricKind
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
        if family.kind is MetricKind.HISTOGRAM:
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


def test_every_panel_of_the_dashboard_has_a_title_a_query_and_its_own_place() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)
    for panel in panels:
        assert panel["title"]
        assert panel["type"] == "row" or all(NAMED.search(t["expr"]) for t in panel["targets"])


LABELS = {name: set(family.labels) for family in FAMILIES for name in samples(family)}
COMMON = {"cluster", "node_id", "node_type"}
OF_PROMETHEUS = {"job", "instance"}


class Query(NamedTuple):
    """A query, and labels of its result that are shown."""

    name: str
    expression: str
    shown: frozenset[str]


def queries_of_dashboard() -> Iterator[Query]:
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            shown = re.findall(r"{{(\w+)}}", target["legendFormat"])
            yield Query(panel["title"], target["expr"], frozenset(shown))
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.findall(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])[
                0
            ]
            yield Query(variable["name"], f"max by ({label}) ({metric})", frozenset())


def queries_of_alerts() -> Iterator[Query]:
    for alert in (MONITORING / "alerts.yml").read_text("utf-8").split("- alert: ")[1:]:
        expression = re.findall(r"expr: (?:>\n)?(.*?)\n +(?:for|labels):", alert, re.DOTALL)[0]
        shown = re.findall(r"\$labels\.(\w+)", alert)
        yield Query(alert.split("\n", 1)[0], expression, frozenset(shown))


def queries_of_guide() -> Iterator[Query]:
    for expression in re.findall(r"^ +query: (.*)$", GUIDE.read_text("utf-8"), re.MULTILINE):
        yield Query("guide", expression, frozenset())


QUERIES = [*queries_of_dashboard(), *queries_of_alerts(), *queries_of_guide()]


@pytest.mark.parametrize("query", QUERIES, ids=[f"{n} {q.name}" for n, q in enumerate(QUERIES)])
def test_labels_in_a_query_are_those_of_its_metrics(query: Query) -> None:
    metrics = set(NAMED.findall(query.expression))
    known = COMMON.union(*(LABELS[name] for name in metrics))
    if any(name.endswith("_bucket") for name in metrics):
        known |= {"le"}
    for name, chosen in re.findall(r"((?:rocketmq|sparrowmq)_\w+)\{(.*?)\}", query.expression):
        assert set(re.findall(r"(\w+)=", chosen)) <= LABELS[name] | COMMON, name
    groups = re.findall(r"\b(?:by|on) \((.*?)\)", query.expression)
    grouped = {label for group in groups for label in group.split(", ")}
    assert grouped <= known
    assert query.shown <= (grouped or known | OF_PROMETHEUS), "nothing would be shown"


def test_the_query_for_keda_in_the_guide_is_among_them() -> None:
    (query,) = queries_of_guide()
    assert "rocketmq_consumer_lag_messages" in query.expression


def test_an_alert_describes_the_problem_and_the_remedy() -> None:
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
