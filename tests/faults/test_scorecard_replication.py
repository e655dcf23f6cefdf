"""What row 8 judges at full size only."""

from typing import Any

import pytest

from tests.faults import scorecard_replication
from tests.faults.role_changes import ChangeResult
from tests.faults.scorecard_replication import replication


@pytest.mark.parametrize(
    ("longest_send_s", "small", "is_met"),
    [(0.9, False, True), (1.1, False, False), (1.1, True, True)],
)
def test_a_send_waits_a_second_at_most_for_a_change_of_roles(
    longest_send_s: float, small: bool, is_met: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(flush: str, **_: Any) -> ChangeResult:
        return ChangeResult(0, flush, longest_send_s=longest_send_s)

    monkeypatch.setattr(scorecard_replication, "change_roles", changed)
    scored = replication(0, small, "changes of roles")
    assert scored.is_met is is_met, scored.failures
