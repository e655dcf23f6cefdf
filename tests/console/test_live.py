"""Live updates: only what changed, once for all readers, and an end."""

import asyncio
import json

from sparrowmq.console.live import Live, fragments, parse_seen, seen_text
from sparrowmq.testing import Simulation


def page(lag: int) -> str:
    return f"<h1>x</h1><!--live:lag-->{lag}<!--end:lag--><!--live:members-->2<!--end:members-->"


def test_marked_parts_are_found_and_compared_by_content() -> None:
    first, second = fragments(page(1)), fragments(page(2))
    assert first["lag"].html == "1"
    assert first["members"] == second["members"]
    assert first["lag"] != second["lag"]
    assert parse_seen(seen_text(first)) == {name: part.digest for name, part in first.items()}
    assert parse_seen("garbage,,:") == {"": ""}


async def read(live: Live, lags: list[int], rendered: list[int], count: int) -> list[str]:
    async def render() -> str:
        rendered.append(1)
        return page(lags[min(len(rendered), len(lags)) - 1])

    seen = parse_seen(seen_text(fragments(page(1))))
    got = []
    async for part in live.stream("key", render, seen, period_s=0.01):
        if part.startswith(b"event: fragment"):
            got.append(json.loads(part.partition(b"data: ")[2])["html"])
        if len(got) == count:
            break
    return got


def test_a_reader_gets_only_the_parts_that_changed_since_it_saw_the_page() -> None:
    rendered: list[int] = []
    assert asyncio.run(read(Live(), [1, 1, 2, 2, 3], rendered, 2)) == ["2", "3"]
    assert len(rendered) == 5


def test_readers_of_the_same_view_share_what_is_rendered() -> None:
    async def work() -> int:
        live, rendered = Live(), list[int]()
        await asyncio.gather(*(read(live, list(range(1, 50)), rendered, 3) for _ in range(10)))
        return len(rendered)

    # In virtual time all readers wake at the same moment of every round.
    with Simulation(seed=1) as sim:
        assert sim.run(work()) <= 4, "not ten times three"


def test_streams_end_with_the_console() -> None:
    async def work() -> list[bytes]:
        live = Live()

        async def render() -> str:
            live.close()
            return page(1)

        return [part async for part in live.stream("key", render, {}, period_s=0.01)]

    parts = asyncio.run(work())
    assert parts[0].startswith(b"retry:")
