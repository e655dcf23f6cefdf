"""Names, labels, types and buckets, against those that Apache's broker 5.5.0 was seen to export.

The vector leaves out what all of its lines have (cluster, node_id, node_type, and
otel_scope_name, which says only that OpenTelemetry made them).
"""

import json
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.metrics.families import BROKER_FAMILIES, NAME_SERVER_FAMILIES, Family

APACHE: dict[str, Any] = json.loads(
    (Path(__file__).parent / "apache_5_5_0.json").read_text(encoding="utf-8")
)
OURS = {family.name: family for family in BROKER_FAMILIES if family.name.startswith("rocketmq_")}
NOT_OFFERED = {
    # There are no pop consumers yet.
    "rocketmq_pop_buffer_scan_time_consume_milliseconds",
    "rocketmq_pop_checkpoint_buffer_size",
    "rocketmq_pop_offset_buffer_size",
    "rocketmq_pop_revive_lag_milliseconds",
    "rocketmq_pop_revive_latency_milliseconds",
    # Would have to be counted for every delayed message.
    "rocketmq_delay_message_latency_seconds",
    "rocketmq_timer_dequeue_lag",
    "rocketmq_timer_dequeue_total",
    "rocketmq_timer_enqueue_total",
    "rocketmq_timer_message_snapshot",
    # Would have to be measured for every transaction.
    "rocketmq_finish_message_latency_milliseconds",
}


def test_every_metric_of_apache_is_offered_or_listed_as_missing() -> None:
    assert OURS.keys() | NOT_OFFERED == APACHE.keys()
    assert not OURS.keys() & NOT_OFFERED


@pytest.mark.parametrize("name", sorted(OURS))
def test_a_metric_has_apaches_type_labels_and_buckets(name: str) -> None:
    ours, apaches = OURS[name], APACHE[name]
    assert ours.kind == apaches["type"]
    assert list(ours.labels) == apaches["labels"]
    assert list(ours.buckets) == apaches.get("buckets", [])


def test_no_name_is_used_twice() -> None:
    names = [name for family in BROKER_FAMILIES for name in family.names]
    assert len(set(names)) == len(names)


ALL = sorted({*BROKER_FAMILIES, *NAME_SERVER_FAMILIES}, key=lambda family: family.name)


@pytest.mark.parametrize("family", ALL, ids=lambda family: str(family.name))
def test_the_help_is_a_sentence_in_one_line(family: Family) -> None:
    assert family.help.endswith(".")
    assert "\n" not in family.help
