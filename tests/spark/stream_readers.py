"""Stream readers, asked directly for what Spark asks them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable

from sparrowmq.spark.offsets import from_json
from sparrowmq.spark.options import parse_options
from sparrowmq.spark.schema import read_columns
from sparrowmq.spark.source import Piece
from sparrowmq.spark.stream import StreamReader

BODY = read_columns(["body"])
ALL = ReadAllAvailable()
Open = Callable[..., StreamReader]


@contextmanager
def stream_readers() -> Iterator[Open]:
    """Makes readers that are stopped when the block ends."""
    opened: list[StreamReader] = []

    def reader(
        name_server: str, topic: str, *, now: Callable[[], float] = lambda: 0.0, **options: str
    ) -> StreamReader:
        base = {"nameServer": name_server, "startingOffsets": "earliest"}
        if "subscribePattern" not in options:
            base["subscribe"] = topic
        parsed = parse_options({**base, **options}, stream=True)
        opened.append(StreamReader(parsed, BODY, now))
        return opened[-1]

    try:
        yield reader
    finally:
        for found in opened:
            found.stop()


def total(offsets: dict[str, Any]) -> int:
    """All offsets added up."""
    return sum(from_json(offsets).values())


def bodies(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    """What a batch has, sorted."""
    # as Spark does it: over JSON, and with a pickled reader on another machine
    parts = reader.partitions(json.loads(json.dumps(start)), json.loads(json.dumps(end)))
    remote = pickle.loads(cloudpickle.dumps(reader))  # type: ignore[no-untyped-call]  # pyspark's
    return sorted(
        body
        for part in pickle.loads(pickle.dumps(parts))
        for batch in remote.read(part)
        for body in batch.column(0).to_pylist()
    )


def ranges(
    reader: StreamReader, start: dict[str, Any], end: dict[str, Any]
) -> list[tuple[int, int]]:
    """From where to where the tasks of a batch read."""
    parts = [part for part in reader.partitions(start, end) if isinstance(part, Piece)]
    return [(part.range.start, part.range.end) for part in parts]
