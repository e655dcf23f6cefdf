"""Progress, delayed messages and transactions of a broker that is killed over and over."""

import pytest

from tests.faults.delivery_kills import Commits, Delivery, Promises
from tests.faults.delivery_kills_processes import deliveries_over_kills
from tests.faults.scorecard_clients import delivery_kills


@pytest.mark.slow
def test_kills_undo_little_progress_lose_nothing_and_cause_no_wrong_delivery() -> None:
    scored = delivery_kills(seed=0, small=True)
    print(scored.counts)
    assert scored.failures == []


@pytest.mark.slow
def test_planted_progress_that_is_not_saved_is_noticed() -> None:
    promises = deliveries_over_kills(0, 2, module="tests.faults.delivery_kills_planted")
    noticed = ("became 0", "was reset", "without need")
    problems = promises.problems()
    assert any(word in problem for word in noticed for problem in problems), problems


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (None, "progress 6 was reset"),
        (4, "progress 6 became 4"),
        (6, ""),
        (7, ""),
        (8, "progress 8 was never reached, 7 was"),
    ],
)
def test_progress_is_neither_undone_nor_invented(found: int | None, problem: str) -> None:
    commits = Commits(attempted=7, answered=[5, 6], found=found)
    assert commits.problem() == problem


def test_progress_that_was_not_answered_may_be_all_there_was() -> None:
    assert Commits(attempted=6, found=None).problem() == ""


def delivery(body: bytes, at_s: float, *, offset: int = 0) -> Delivery:
    return Delivery("t", 0, offset, body, at_s, round(at_s * 1000))


def test_lost_early_and_wrong_deliveries_are_noticed() -> None:
    promises = Promises(
        plain={b"a"},
        due_ms={b"b": 2000, b"c": 2000},
        committed={b"d"},
        rolled_back={b"e"},
        deliveries=[delivery(b"b", 1.9), delivery(b"e", 1.0, offset=1)],
    )
    assert promises.problems() == [
        "1 plain messages lost: a",
        "1 delayed messages lost: c",
        "1 delayed messages early: b",
        "1 committed transactions lost: d",
        "1 rolled back transactions delivered: e",
    ]


def test_only_deliveries_the_broker_had_not_saved_may_be_repeated() -> None:
    first, again = delivery(b"a", 1.0), delivery(b"a", 5.0)
    again.life = 1
    promises = Promises(plain={b"a"}, deliveries=[first, again], kills=1)
    assert promises.problems() == []
    promises.known = {(0, 0): 0}
    assert promises.problems() == []
    promises.known = {(0, 0): 1}
    assert promises.problems() == ["1 delivered again without need: a"]


def test_a_repeated_message_without_a_crash_is_noticed() -> None:
    promises = Promises(plain={b"a"}, deliveries=[delivery(b"a", 1.0), delivery(b"a", 2.0)])
    assert promises.problems() == ["1 delivered again without need: a"]
