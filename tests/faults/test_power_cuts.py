"""Power cuts at any call: synchronous flush loses nothing, asynchronous flush only a suffix."""

import pytest

from tests.faults.power_cuts import LyingDisk, cut_power
from tests.seeds import seeds

SEEDS = range(12)


@pytest.mark.parametrize("seed", seeds(len(SEEDS)))
def test_synchronous_flush_loses_nothing(seed: int) -> None:
    result = cut_power(seed, sync_flush=True)
    assert result, str(result)


@pytest.mark.parametrize("seed", seeds(len(SEEDS)))
def test_asynchronous_flush_loses_at_most_messages_stored_after_the_last_flush(seed: int) -> None:
    result = cut_power(seed, sync_flush=False)
    assert result, str(result)


def test_planted_acknowledging_before_the_flush_is_noticed() -> None:
    results = [cut_power(seed, sync_flush=True, acknowledge_early=True) for seed in SEEDS]
    assert any(result.verdict.lost for result in results)


@pytest.mark.parametrize("sync_flush", [True, False])
def test_planted_a_flush_that_is_skipped_is_noticed(sync_flush: bool) -> None:
    results = [cut_power(seed, sync_flush=sync_flush, make_disk=LyingDisk) for seed in SEEDS]
    assert any(result.verdict.lost or result.problems for result in results)
