"""The text of a page: what Prometheus' own parser reads from it, and that it is made in slices."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from sparrowmq.metrics.families import LAG, LAG_LATENCY, MESSAGE_SIZE, TOPIC_NUMBER
from sparrowmq.metrics.text import Histogram, MetricsText, Row
from sparrowmq.testing.loop_watchdog import LoopWatchdog
from tests.metrics.slices import A_SLICE, counted_slices

COMMON = {"cluster": "C", "node_id": "broker-a", "node_type": "broker"}


def page_with(work: Callable[[MetricsText], Awaitable[None]]) -> str:
    async def make() -> str:
        page = MetricsText(COMMON)
        await work(page)
        return b"".join(page.parts).decode()

    return asyncio.run(make())


def test_labels_and_values_come_back_from_the_parser() -> None:
    labels = ("billing", "false", "false", 'a "quoted" \\ name\nin two lines, 100 %')

    async def work(page: MetricsText) -> None:
        await page.add(LAG, [(labels, 7)])
        await page.add(TOPIC_NUMBER, [((), 3)])

    lag, topics = parse(page_with(work))
    (sample,) = lag.samples
    assert (lag.type, sample.value) == ("gauge", 7)
    assert sample.labels == {**COMMON, **dict(zip(LAG.labels, labels, strict=True))}
    assert topics.samples[0].labels == COMMON


def test_a_metric_with_a_unit_is_offered_under_both_names() -> None:
    async def work(page: MetricsText) -> None:
        await page.add(LAG_LATENCY, iter([(("g", "false", "false", "t"), 1500)]))

    both = {family.name: family.samples[0].value for family in parse(page_with(work))}
    assert both == {
        "rocketmq_consumer_lag_latency_milliseconds": 1500,
        "rocketmq_consumer_lag_latency": 1500,
    }


def test_buckets_of_a_histogram_add_up() -> None:
    histogram = Histogram(MESSAGE_SIZE.buckets)
    for size in (10, 1024, 1025, 5_000_000):
        histogram.observe(size)

    async def work(page: MetricsText) -> None:
        await page.add_histograms(MESSAGE_SIZE, [(("false", "normal", "orders"), histogram)])

    (family,) = parse(page_with(work))
    buckets = {
        each.labels["le"]: each.value for each in family.samples if each.name.endswith("_bucket")
    }
    assert (buckets["1024.0"], buckets["4096.0"], buckets["+Inf"]) == (2, 3, 4)
    totals = {each.name: each.value for each in family.samples if "le" not in each.labels}
    assert totals == {"rocketmq_message_size_count": 4, "rocketmq_message_size_sum": 5_002_059}


def many(count: int) -> list[Row]:
    return [((f"group-{n}", "false", "false", f"topic-{n}"), n) for n in range(count)]


def test_lines_are_formatted_in_slices() -> None:
    async def work() -> None:
        page = MetricsText(COMMON)
        with counted_slices() as slices:
            await page.add(LAG, many(6_000))
            await page.add(LAG_LATENCY, iter(many(6_000)))
        assert slices.longest < A_SLICE
        assert slices.count > 60

    asyncio.run(work())


@pytest.mark.slow  # by the clock, which a machine that does other things disturbs
def test_sixty_thousand_samples_block_the_loop_for_one_slice_at_most() -> None:
    async def work() -> int:
        # A slice is 5 ms; the rest leaves room for a slow machine.
        with LoopWatchdog():
            page = MetricsText(COMMON)
            await page.add(LAG, rows)
        return sum(part.count(b"\n") for part in page.parts)

    rows = many(60_000)
    assert asyncio.run(work()) == 60_002
