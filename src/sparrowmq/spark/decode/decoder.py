"""Stored messages to Arrow: many records in, one RecordBatch out.

    decoder = Decoder(read_columns(["queueOffset", "body"]), "broker-a")
    batch = decoder.decode(pulled_bytes)

Plain records are decoded column by column with numpy and Arrow, odd ones one by one in `slow_path`
and then merged in at their places. Pass thousands of messages per call: below about 500, the cost
per call outweighs the cost per message.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from sparrowmq.spark.decode.plain_columns import NotPlain, PlainColumns
from sparrowmq.spark.decode.record_heads import (
    Flags,
    LaidOut,
    Longs,
    Records,
    lay_out,
    record_starts,
)
from sparrowmq.spark.decode.slow_path import messages_at, row_of
from sparrowmq.spark.schema import READ_COLUMNS, SparkColumn, arrow_schema

Rows = list[tuple[int, dict[str, Any]]]
"""For each row, the record it came from, and its columns."""
_ALL_OFFSETS = range(-(2**63), 2**63)


class Decoder:
    """Turns records into batches of the chosen columns.

    `check_crc` checks every body against its recorded CRC.
    """

    def __init__(
        self,
        columns: tuple[SparkColumn, ...] = READ_COLUMNS,
        broker_name: str = "",
        *,
        check_crc: bool = False,
    ) -> None:
        self.schema = arrow_schema(columns)
        self._broker_name = broker_name
        self._check_crc = check_crc

    def decode(
        self, data: bytes, first_offset: int = 0, end_offset: int = 2**63 - 1
    ) -> pa.RecordBatch:
        """The messages with offsets from `first_offset` up to but not including `end_offset`.

        They keep their order. Raises Damaged where bytes are not records, RocketMQError where a
        compression library is missing.
        """
        starts = record_starts(data)
        if not len(starts):
            return self._batch_of([])
        laid_out = lay_out(data, starts, check_crc=self._check_crc)
        offsets = laid_out.head["queue_offset"]
        chosen = laid_out.plain & (offsets >= first_offset) & (offsets < end_offset)
        # An inner batch may begin before the first offset and reach beyond it.
        return self._rows(laid_out, chosen, ~laid_out.plain, range(first_offset, end_offset))[0]

    def decode_chosen(self, laid_out: LaidOut, chosen: Flags) -> tuple[pa.RecordBatch, Longs]:
        """The messages of the chosen records, and which record each is from. Raises as `decode`."""
        plain = laid_out.plain
        return self._rows(laid_out, chosen & plain, chosen & ~plain, _ALL_OFFSETS)

    def _rows(
        self, laid_out: LaidOut, chosen: Flags, slow: Flags, wanted: range
    ) -> tuple[pa.RecordBatch, Longs]:
        while True:
            try:
                batch = self._plain_batch(laid_out.records, chosen)
                break
            except NotPlain as odd:  # at most a few times: fewer records are left each time
                moved = np.flatnonzero(chosen)[odd.rows]
                slow[moved] = True
                chosen[moved] = False
        places = np.flatnonzero(chosen)
        if not slow.any():
            return batch, places
        return self._merged(batch, places, list(self._slow_rows(laid_out, slow, wanted)))

    def _plain_batch(self, records: Records, chosen: Flags) -> pa.RecordBatch:
        if not chosen.any():
            return self._batch_of([])
        some = records if chosen.all() else records.only(chosen)
        return PlainColumns(some, self._broker_name, self.schema).batch()

    def _slow_rows(
        self, laid_out: LaidOut, slow: Flags, wanted: range
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        for place in np.flatnonzero(slow).tolist():
            at = int(laid_out.starts[place])
            for message in messages_at(laid_out.data, at, check_crc=self._check_crc):
                if message.queue_offset in wanted:
                    yield place, row_of(message, self._broker_name, at)

    def _merged(
        self, batch: pa.RecordBatch, places: Longs, rows: Rows
    ) -> tuple[pa.RecordBatch, Longs]:
        """Plain and slow messages in the order of their records."""
        if not rows:
            return batch, places
        slow = self._batch_of([row for _, row in rows])
        of_slow = np.array([place for place, _ in rows], np.int64)
        if not batch.num_rows:
            return slow, of_slow
        all_places = np.concatenate((places, of_slow))
        order = np.argsort(all_places, kind="stable")
        return pa.concat_batches([batch, slow]).take(pa.array(order)), all_places[order]

    def _batch_of(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        arrays = [pa.array([row[field.name] for row in rows], field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
