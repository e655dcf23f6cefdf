"""Two copies: kills, power cuts, partitions and storms lose no acknowledged message."""

from collections.abc import Callable

import pytest

from sparrowmq.broker.config import Flush
from tests.faults.network_hosts import NotAllowed
from tests.faults.replication_hosts import part_from_live_master
from tests.faults.replication_kills import kill_master, part_master_and_slave
from tests.faults.replication_planted import (
    Patch,
    acknowledge_before_the_slave_has_it,
    drop_a_tail_silently,
    report_before_the_sync,
    serve_before_asking_the_slaves,
    show_what_may_be_lost,
)
from tests.faults.replication_power_cuts import cut_masters_power
from tests.faults.replication_storm import run_storm
from tests.faults.role_changes import change_roles
from tests.patience import PATIENCE_S
from tests.seeds import seeds


@pytest.mark.parametrize("seed", seeds(60))
def test_a_storm_loses_no_acknowledged_message(seed: int) -> None:
    result = run_storm(seed)
    assert result, str(result)
    assert result.acknowledged


@pytest.mark.parametrize("flush", list(Flush))
@pytest.mark.parametrize("cuts", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_a_slave_alone_has_all_messages_acknowledged_before_a_power_cut(
    cuts: int, flush: Flush
) -> None:
    result = cut_masters_power(0, flush=flush, cuts=cuts)
    assert result, str(result)
    assert result.acknowledged > 100


@pytest.mark.parametrize(
    ("plant", "flush", "senders", "found"),
    [
        (report_before_the_sync, Flush.SYNC, 64, "cut 1: the slave lacks"),
        # Its slave is refused from then on, and more senders only make the wait for it longer.
        (serve_before_asking_the_slaves, Flush.ASYNC, 1, "the master lacks"),
    ],
    ids=["report early", "serve early"],
)
def test_planted_bugs_are_noticed_after_one_power_cut(
    plant: Callable[[Patch], None],
    flush: Flush,
    senders: int,
    found: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch.setattr)
    result = cut_masters_power(0, flush=flush, cuts=1, senders=senders)
    assert any(found in problem for problem in result.problems), str(result)


@pytest.mark.parametrize(
    ("flush", "kills"),
    [
        ("async", 1),
        pytest.param("async", 2, marks=pytest.mark.slow),
        pytest.param("sync", 2, marks=pytest.mark.slow),
    ],
)
def test_a_slave_alone_has_all_messages_acknowledged_before_a_kill(flush: str, kills: int) -> None:
    result = kill_master(0, flush, kills=kills, acknowledged_each=200, consumes=False)
    assert result, str(result)
    assert result.verdict.ok > 200 * kills


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["async", "sync"])
def test_progress_does_not_move_back_by_kills(flush: str) -> None:
    result = kill_master(1, flush, kills=2, acknowledged_each=400)
    assert result, str(result)
    assert result.compared_progress >= 2


@pytest.mark.slow
def test_planted_a_master_that_forgets_commits_is_noticed() -> None:
    module = "tests.faults.planted_forgetful_master"
    result = kill_master(1, "async", kills=4, acknowledged_each=400, module=module)
    assert any("progress in queue" in problem for problem in result.problems), str(result)


@pytest.mark.slow
def test_a_live_master_that_lost_its_slave_acknowledges_nothing() -> None:
    result = part_master_and_slave(0, "async", partitions=1)
    assert result, str(result)


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["async", "sync"])
def test_an_old_master_that_lives_on_without_its_slave_acknowledges_nothing(flush: str) -> None:
    try:
        result = part_from_live_master(flush)
    except NotAllowed as error:
        pytest.skip(str(error))
    assert result, str(result)
    assert result.verdict.ok


@pytest.mark.slow
def test_no_send_fails_while_two_processes_change_roles() -> None:
    result = change_roles("async", changes=2, between=200, timeout_s=PATIENCE_S)
    assert result, str(result)
    assert (result.changes, result.sent > 600) == (2, True)


@pytest.mark.slow
def test_planted_a_producer_that_gives_up_at_once_is_noticed() -> None:
    result = change_roles("async", changes=2, between=200, timeout_s=PATIENCE_S, retries=0)
    assert any("failed: sending to topic" in problem for problem in result.problems), str(result)


def test_planted_a_master_that_acknowledges_alone_is_noticed() -> None:
    result = part_master_and_slave(0, "async", partitions=1, module="tests.faults.planted_master")
    assert any("SEND_OK in partition" in problem for problem in result.problems), str(result)


@pytest.mark.slow
def test_planted_an_old_master_that_acknowledges_alone_is_noticed() -> None:
    try:
        result = part_from_live_master("async", module="tests.faults.planted_master")
    except NotAllowed as error:
        pytest.skip(str(error))
    assert any("the old master answered" in problem for problem in result.problems), str(result)


PLANTED: dict[Callable[[Patch], None], range] = {
    acknowledge_before_the_slave_has_it: range(1),
    report_before_the_sync: range(5, 14),
    drop_a_tail_silently: range(30, 31),
    serve_before_asking_the_slaves: range(2, 9),
    show_what_may_be_lost: range(72, 73),
}


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_planted_bugs_are_noticed(
    plant: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch.setattr)
    assert any(not run_storm(seed) for seed in PLANTED[plant])
