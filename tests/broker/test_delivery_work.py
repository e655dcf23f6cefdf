"""The budget of delayed messages and transactions in the handlers, in calls and instructions.

As in `tests/guard`: a budget that is exceeded on purpose is raised in the commit that needs it.
"""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import delivery_frames
from bench.delivery_cpu import where
from sparrowmq.protocol.frame import FrameDecoder
from sparrowmq.protocol.header import decode_plain
from tests.guard.counting import ROUNDS, Work, count
from tests.guard.workload import Wired, wired

REQUESTS = 16
HOUR_MS = 3_600_000
BUDGETS = {"timed": (77, 1_280), "delayed": (69, 1_190), "half": (73, 1_280), "end": (153, 2_260)}
"""Calls and instructions of each; instructions are those of 3.11."""
Make = Callable[[int], bytes]


def counted(client: Wired, make: Make, first: int) -> Work:
    rounds = iter(
        [
            [make(first + number * REQUESTS + one) for one in range(REQUESTS)]
            for number in range(ROUNDS)
        ]
    )
    return count(lambda: client.feed(next(rounds)))


async def measured(folder: Path) -> dict[str, Work]:
    async with wired(folder) as client:
        now_ms = client.broker.clock()
        work = {}
        work["timed"] = counted(
            client, lambda n: delivery_frames.timed_send(n, now_ms + HOUR_MS + n, n % 8), 0
        )
        work["delayed"] = counted(
            client, lambda n: delivery_frames.delayed_send(n, 18, n % 8), 1000
        )
        client.answers()
        work["half"] = counted(client, lambda n: delivery_frames.half_send(n, n % 8), 2000)
        written = client.written
        assert client.answers() == [0] * REQUESTS * ROUNDS
        answers = [decode_plain(binary, head) for binary, head, _ in FrameDecoder().feed(written)]
        places = [where(answer) for answer in answers]
        work["end"] = counted(client, lambda n: delivery_frames.commit(n, *places[n]), 0)
        assert client.answers() == [0] * REQUESTS * ROUNDS
        assert len(client.broker.delivery.halves) == 0
        assert len(client.broker.delivery.timers) == REQUESTS * ROUNDS
        return work


@pytest.fixture(scope="module")
def works(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Work]:
    return asyncio.run(measured(tmp_path_factory.mktemp("broker")))


@pytest.mark.parametrize("kind", BUDGETS)
def test_the_work_of_delayed_messages_and_transactions_stays_within_its_budget(
    works: dict[str, Work], kind: str
) -> None:
    calls, instructions = works[kind].per(REQUESTS)
    most_calls, most_instructions = BUDGETS[kind]
    is_over = calls > most_calls
    if sys.version_info[:2] == (3, 11):
        is_over = is_over or instructions > most_instructions
    assert not is_over, (
        f"{calls:.1f} calls and {instructions:.0f} instructions, at most {most_calls} and"
        f" {most_instructions} allowed\n{works[kind].table(REQUESTS)}"
    )
