"""A broker that dies in a system call, or whose syncs fail; test_io_errors does it in process."""

import pytest

from tests.faults import crash_points
from tests.faults.process_faults import die_in_calls, fail_syncs

needs_strace = pytest.mark.skipif(
    not crash_points.is_available(), reason="strace is missing or not allowed to trace"
)


@pytest.mark.slow
@needs_strace
def test_a_broker_that_dies_in_system_calls_loses_nothing_it_acknowledged() -> None:
    result = die_in_calls(seed=0, deaths=4)
    assert result, str(result)


@pytest.mark.slow
@needs_strace
def test_a_broker_whose_syncs_fail_ends_with_an_error_and_loses_nothing() -> None:
    result = fail_syncs(seed=0)
    assert result, str(result)
