"""Apache's own classes and ours, asked the same. The full runs: python -m tests.interop.oracles."""

import pytest

from tests.interop.oracles import sql92_run, strategy_run
from tests.interop.oracles.apache import missing_tool

MISSING = missing_tool()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


def test_the_sql92_filter_answers_as_apaches_evaluator_does() -> None:
    report = sql92_run.run(pairs=20_000, seed=1)
    assert report.is_equal, str(report)


def test_the_strategies_share_queues_as_apaches_classes_do() -> None:
    report = strategy_run.run(cases=200, seed=1)
    assert report.is_equal, str(report)
