"""Queues that got shorter after they were read, and grew again: nothing new is ever skipped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark", reason="needs the spark extra: pip install sparrowmq[spark]")

from sparrowmq.spark.errors import DataLoss
from sparrowmq.spark.jobs.ranges import next_ranges
from sparrowmq.spark.offsets import QueueRange
from sparrowmq.spark.options import Options, parse_options
from sparrowmq.spark.positions import ends_now, from_json
from sparrowmq.spark.puller import read_range
from sparrowmq.spark.routes import Cluster as Routes
from tests.spark.shortened import READ, TOPIC, WAYS, World, read_world
from tests.spark.stream_readers import ALL, BODY, bodies, stream_readers

ENDS = {"shorter": READ - 3, "equal": READ, "regrown": READ + 4}


@pytest.fixture(scope="module", params=[(way, size) for way in WAYS for size in ENDS], ids="-".join)
def shortened(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """A queue that went back, and got new messages since. Tests only read from it."""
    way, size = request.param
    with read_world(tmp_path_factory.mktemp("shortened")) as world:
        WAYS[way](world)
        world.send(ENDS[size] - world.kept)
        yield world


def by_stream(world: World, fail: str, *, available_now: bool) -> list[list[bytes]]:
    """What a restarted stream reads, batch by batch."""
    batches, at = [], world.checkpoint
    with stream_readers() as open_reader:
        reader = open_reader(world.running.name_server, TOPIC, failOnDataLoss=fail)
        if available_now:
            reader.prepareForTriggerAvailableNow()
        while (end := reader.latestOffset(at, ALL)) != at:
            batches.append(bodies(reader, at, end))
            at = end
    return batches


def by_archive(world: World, fail: str) -> list[list[bytes]]:
    """What `archive --once` adds, commit by commit."""
    batches, at = [], from_json(world.checkpoint)
    base = {"nameServer": world.running.name_server, "subscribe": TOPIC}
    options = parse_options({**base, "failOnDataLoss": fail}, stream=True)
    with Routes(options.name_server) as routes:
        target = ends_now(routes, routes.queues(TOPIC))
        while (planned := next_ranges(routes, options, at, target, 1000))[0]:
            ranges, at = planned
            batches.append(read(ranges, options))
    return batches


def read(ranges: list[QueueRange], options: Options) -> list[bytes]:
    found = [batch for part in ranges for batch in read_range(part, options, BODY)]
    return sorted(body for batch in found for body in batch.column(0).to_pylist())


READS = {
    "stream": lambda world, fail: by_stream(world, fail, available_now=False),
    "availableNow": lambda world, fail: by_stream(world, fail, available_now=True),
    "archive --once": by_archive,
}


@pytest.mark.parametrize("how", READS)
def test_it_is_data_loss_in_every_trigger(shortened: World, how: str) -> None:
    with pytest.raises(DataLoss) as caught:
        READS[how](shortened, "true")
    text = str(caught.value)
    assert f"orders queue 0 of broker-a went back: it had reached {READ}" in text
    assert f"only those before {shortened.kept} are left" in text
    assert "failOnDataLoss=false" in text


@pytest.mark.parametrize("how", READS)
def test_with_data_loss_allowed_all_that_came_since_is_read_once(
    shortened: World, how: str
) -> None:
    assert READS[how](shortened, "false") == [shortened.new]
