"""Flipped and missing bytes: no damaged message is served, no intact one is lost."""

import pytest

from sparrowmq.store.config import StoreConfig
from tests.faults import store_run
from tests.faults.byte_damage import cut, flip, small_store
from tests.faults.scorecard import byte_damage
from tests.faults.store_run import CONFIG


def test_a_flip_and_a_cut_in_any_file_are_survived() -> None:
    store = small_store(0)
    for path, data in store.files():
        at = len(data) // 2
        for result in (flip(store, path, at, 1), cut(store, path, at)):
            assert result, str(result)


@pytest.mark.slow
def test_flips_and_cuts_all_over_a_store_are_survived() -> None:
    scored = byte_damage(seed=0, small=True)
    assert scored.failures == []


@pytest.mark.slow
def test_every_byte_of_the_first_records_counts() -> None:
    store = small_store(3, log_bytes=4_000)
    path = "commitlog/00000000000000000000"
    for at in range(1, 700):
        for result in (flip(store, path, at, 1 << at % 8), cut(store, path, at)):
            assert result, str(result)


@pytest.mark.slow
def test_planted_records_without_their_crc_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    careless = StoreConfig(
        log_file_size=CONFIG.log_file_size,
        queue_file_units=CONFIG.queue_file_units,
        index_slots=CONFIG.index_slots,
        index_entries=CONFIG.index_entries,
        reserve_bytes=CONFIG.reserve_bytes,
        record_crc=False,
    )
    monkeypatch.setattr(store_run, "CONFIG", careless)
    store = small_store(3, log_bytes=4_000)
    path = "commitlog/00000000000000000000"
    results = [flip(store, path, at, 1) for at in range(700)]
    assert any("damaged" in result.verdict.problems() for result in results)
