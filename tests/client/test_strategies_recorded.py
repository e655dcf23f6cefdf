"""Groups with the shares that the classes of Apache RocketMQ 5.5.0 gave each member.

Recorded by `python -m tests.interop.oracles strategies --cases 60 --seed 2026 --record …`.
"""

import json
from collections import Counter
from pathlib import Path

from tests.interop.oracles.strategy_run import our_answer

RECORDED = Path(__file__).with_name("strategies_recorded.json")


def test_every_recorded_group_is_shared_as_apache_shared_it() -> None:
    rows = json.loads(RECORDED.read_text())
    different = [
        (case, apache, ours)
        for case, apache in rows
        if (ours := our_answer(case)["views"]) != apache
    ]
    assert different == []


def test_the_record_covers_every_strategy_and_crowded_groups() -> None:
    cases = [case for case, _ in json.loads(RECORDED.read_text())]
    counts = Counter(case["strategy"] for case in cases)
    assert len(counts) == 8
    assert min(counts.values()) >= 15
    assert sum(len(case["members"]) > len(case["queues"]) for case in cases) > 40
    assert max(len(case["members"]) for case in cases) > 100
