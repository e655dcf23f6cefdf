"""A disk that fails: no acknowledgement after the first failed sync, nothing lost."""

import pytest

from tests.faults.io_errors import KINDS, RetryingRun, fail_disk

SEEDS = range(8)


@pytest.mark.parametrize("sync_flush", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_failing_disk_ends_acknowledgements_and_loses_nothing(
    kind: str, sync_flush: bool
) -> None:
    results = [fail_disk(seed, kind, sync_flush=sync_flush) for seed in SEEDS]
    assert [str(result) for result in results if not result] == []
    assert any(result.was_met for result in results)


def test_planted_going_on_after_a_failed_sync_is_noticed() -> None:
    results = [fail_disk(seed, "sync", sync_flush=True, run_type=RetryingRun) for seed in SEEDS]
    assert any(result.verdict.lost for result in results)
    assert any(result.problems for result in results)
