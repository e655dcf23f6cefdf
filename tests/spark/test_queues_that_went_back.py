"""Queues that got shorter after they were read, and grew again: nothing new is ever skipped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the spark extra: pip install sparrowmq[spark]")

from pyspark.sql.datasource import InputPartition

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.spark.errors import DataLoss
from sparrowmq.spark.jobs.copy import next_ranges
from sparrowmq.spark.offsets import QueueRange
from sparrowmq.spark.options import Options, parse_options
from sparrowmq.spark.positions import EPOCHS, ends_now, from_json, to_json
from sparrowmq.spark.stream import StreamReader
from sparrowmq.spark.wire.cluster import Queue, QueuePosition, RemoteCluster
from sparrowmq.spark.wire.puller import read_range
from tests.spark.scripted_broker import Said, ScriptedBroker
from tests.spark.shortened import READ, TOPIC, WAYS, World, read_world
from tests.spark.stream_readers import ALL, BODY, bodies, ranges, stream_readers

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
    with RemoteCluster(options.name_server) as routes:
        target = ends_now(routes, routes.queues(TOPIC))
        while (planned := next_ranges(routes, options, at, target, 1000))[0]:
            parts, at = planned
            batches.append(read(parts, options))
    return batches


def read(parts: list[QueueRange], options: Options) -> list[bytes]:
    found = [batch for part in parts for batch in read_range(part, options, BODY)]
    return sorted(body for batch in found for body in batch.column(0).to_pylist())


READS = {
    "stream": lambda world, fail: by_stream(world, fail, available_now=False),
    "availableNow": lambda world, fail: by_stream(world, fail, available_now=True),
    "archive --once": by_archive,
}


@pytest.mark.slow
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


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with read_world(tmp_path) as made:
        yield made


def test_a_restart_without_loss_causes_no_batch_and_no_reported_loss(world: World) -> None:
    world.restart()
    for available_now in (False, True):
        assert by_stream(world, "true", available_now=available_now) == []
    assert by_archive(world, "true") == []
    sent = world.send(5)
    assert by_stream(world, "true", available_now=False) == [sent]


def test_a_log_that_was_cut_before_several_epochs_has_gone_back_for_all_of_them(
    world: World,
) -> None:
    world.restart()
    world.lose_power()
    world.send(2 * READ)
    with pytest.raises(DataLoss, match=f"before {world.kept} are left"):
        by_stream(world, "true", available_now=True)
    assert by_stream(world, "false", available_now=True) == [world.new]


def without_epochs(offsets: dict[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in offsets.items() if name != EPOCHS}


def test_offsets_of_an_earlier_release_are_compared_with_the_end(world: World) -> None:
    """If a queue has grown past them again, the loss cannot be detected."""
    world.checkpoint = without_epochs(world.checkpoint)
    sent = world.send(2)
    assert by_stream(world, "true", available_now=True) == [sent]
    world.lose_power()
    for how in READS:
        with pytest.raises(DataLoss, match=f"had reached {READ}"):
            READS[how](world, "true")


# ---- between the plan of a batch and its tasks


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_planned_again", [True, False], ids=["driver restarts", "tasks only"])
def test_a_batch_is_never_read_from_messages_that_took_the_place_of_its_own(
    tmp_path: Path, way: str, is_planned_again: bool
) -> None:
    """Its last messages are lost after it was planned: others have their offsets."""
    with read_world(tmp_path) as world, stream_readers() as open_reader:

        def open_one(fail: str) -> StreamReader:
            return open_reader(world.running.name_server, TOPIC, failOnDataLoss=fail)

        strict, loose = open_one("true"), open_one("false")
        start = strict.initialOffset()
        end = strict.latestOffset(start, ALL)
        assert loose.latestOffset(start, ALL) == end
        parts = {reader: reader.partitions(start, end) for reader in (strict, loose)}
        WAYS[way](world)
        world.send(READ)
        if is_planned_again:
            strict, loose = open_one("true"), open_one("false")
        with pytest.raises(DataLoss, match=f"had reached {READ}"):
            read_parts(strict, parts.get(strict) or strict.partitions(start, end))
        kept = [b"%06d" % number for number in range(world.kept)]
        assert read_parts(loose, parts.get(loose) or loose.partitions(start, end)) == kept
        later = loose.latestOffset(end, ALL)
        assert bodies(loose, end, later) == world.new


def read_parts(reader: StreamReader, parts: Sequence[InputPartition]) -> list[bytes]:
    found = [batch for part in parts for batch in reader.read(part)]
    return sorted(body for batch in found for body in batch.column(0).to_pylist())


def test_a_batch_that_is_all_there_is_read_after_a_restart(world: World) -> None:
    with stream_readers() as open_reader:
        planned = open_reader(world.running.name_server, TOPIC)
        start = planned.initialOffset()
        end = planned.latestOffset(start, ALL)
        world.restart()
        world.send(3)
        again = open_reader(world.running.name_server, TOPIC)
        assert bodies(again, start, end) == [b"%06d" % number for number in range(READ)]


# ---- what it costs, and what the broker hears


def test_a_micro_batch_sends_no_requests_while_nothing_has_changed() -> None:
    with ScriptedBroker() as broker, stream_readers() as open_reader:
        fields = {"offset": "10", "sparrowEpoch": "7"}
        broker.on(RequestCode.GET_MAX_OFFSET, lambda _: Said(fields=fields))
        reader = open_reader(broker.address, "orders")
        start = to_json({Queue("orders", "broker-a", 0): QueuePosition(5, 7)})
        end = reader.latestOffset(start, ALL)
        assert ranges(reader, start, end) == [(5, 10)]
        assert broker.count(RequestCode.GET_MAX_OFFSET) == 1
        # by the next driver, which cannot know what has happened meanwhile
        assert ranges(open_reader(broker.address, "orders"), start, end) == [(5, 10)]
        assert broker.count(RequestCode.GET_MAX_OFFSET) == 3


def test_progress_is_committed_with_its_epoch_and_never_past_what_is_left(world: World) -> None:
    with stream_readers() as open_reader, RemoteCluster(world.running.name_server) as routes:
        reader = open_reader(world.running.name_server, TOPIC, group="billing")
        (queue,) = routes.queues(TOPIC)
        reader.commit(world.checkpoint)
        assert routes.consumer_offset("billing", queue) == READ
        world.lose_power()
        world.send(READ)
        later = open_reader(world.running.name_server, TOPIC, group="billing")
        later.commit(world.checkpoint)
        assert (routes.consumer_offset("billing", queue) or 0) <= world.kept
        end = world.latest()
        later.commit(end)
        assert routes.consumer_offset("billing", queue) == world.kept + READ
