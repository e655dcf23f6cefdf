"""Pairs of expressions and properties with what Apache RocketMQ 5.5.0 answered to them.

Recorded by `python -m tests.interop.oracles sql92 --cases 6000 --seed 2026 --record …`.
"""

import json
from pathlib import Path

from tests.interop.oracles.sql92_run import our_answer

RECORDED = Path(__file__).with_name("recorded.json")


def test_every_recorded_pair_has_the_result_apache_gave_it() -> None:
    rows = json.loads(RECORDED.read_text())
    different = [
        (expression, properties, apache, ours)
        for expression, properties, apache in rows
        if (ours := our_answer(expression, properties)) != apache
    ]
    assert different == []


def test_the_record_holds_thousands_of_pairs_of_every_outcome() -> None:
    rows = json.loads(RECORDED.read_text())
    outcomes = "".join(apache for _, _, apache in rows)
    assert len(outcomes) > 4_000
    assert all(outcomes.count(letter) > 300 for letter in "tfner")
