"""A broker answers and survives a full disk, and resumes writing when there is space again."""

from pathlib import Path

import pytest

from tests.faults.full_disk import (
    CarelessLedger,
    on_recording_disk,
    on_tmpfs,
    under_size_limit,
)
from tests.seeds import seeds


@pytest.mark.parametrize("seed", [0, 1])
def test_a_store_survives_a_disk_that_fills_up_and_gets_room_again(seed: int) -> None:
    result = on_recording_disk(6, seed)
    assert result, str(result)


@pytest.mark.slow
def test_a_store_survives_a_full_file_system(tmp_path: Path) -> None:
    result = on_tmpfs(tmp_path, 3, seed=0)
    if result is None:
        pytest.skip("user namespaces are not allowed here; the size limit below stands in")
    assert result, str(result)


@pytest.mark.parametrize("seed", seeds(2, few=1))
def test_a_store_survives_a_limit_on_file_sizes(tmp_path: Path, seed: int) -> None:
    result = under_size_limit(tmp_path, 3, seed)
    assert result, str(result)


def test_planted_acknowledging_a_message_that_did_not_fit_is_noticed() -> None:
    assert not on_recording_disk(3, 0, CarelessLedger())
