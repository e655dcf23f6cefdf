"""Queues, index, checkpoint and marks are rebuilt identically from the log after a deletion."""

from itertools import count

import pytest

from sparrowmq.protocol.record_outline import RecordOutline
from sparrowmq.store.dispatch import Dispatch
from tests.faults.derived_files import KINDS, delete_derived


@pytest.mark.parametrize("count", [8, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_deleted_files_come_back_identical(kind: str, count: int) -> None:
    results = [delete_derived(seed, kind) for seed in range(count)]
    assert [str(result) for result in results if not result] == []
    assert any(result.deleted for result in results) or kind == "abort"


def test_planted_a_record_that_is_not_dispatched_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dispatch, number = Dispatch.redispatch, count()

    def forgetful(
        self: Dispatch, record: RecordOutline, *, queues: bool = True, index: bool = True
    ) -> None:
        if next(number) != 5:
            dispatch(self, record, queues=queues, index=index)

    monkeypatch.setattr(Dispatch, "redispatch", forgetful)
    assert not delete_derived(1, "consumequeue")
