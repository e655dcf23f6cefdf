"""Stored messages to Arrow: many records in, one RecordBatch out.

    decoder = Decoder(read_columns(["queueOffset", "body"]), "broker-a")
    batch = decoder.decode(pulled_bytes)

Plain records are handled column by column with numpy and Arrow; odd ones one by one, in
`decode_slow`, and put where they belong. Give it thousands of messages a call: the work per call
outweighs the work per message below about 500.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from sparrowmq.spark.decode_heads import Flags, Longs, Records, heads_at, lay_out, record_starts
from sparrowmq.spark.decode_plain import NotPlain, PlainColumns
from sparrowmq.spark.decode_slow import messages_at, row_of
from sparrowmq.spark.schema import READ_COLUMNS, Column, arrow_schema

Rows = list[tuple[int, dict[str, Any]]]
"""Which record each came from, and its columns."""


class Decoder:
    """Turns records into batches of the chosen columns.

    `check_crc` checks every body against its recorded CRC.
    """

    def __init__(
        self,
        columns: tuple[Column, ...] = READ_COLUMNS,
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
        """The messages with an offset from `first_offset` on and below `end_offset`, in order.

        Raises Damaged where the bytes are no records, RocketMQError where a compression library
        is missing.
        """
        wanted = range(first_offset, end_offset)
        starts = record_starts(data)
        if not len(starts):
            return self._batch_of([])
        head = heads_at(data, starts)
        records, plain = lay_out(data, starts, head, check_crc=self._check_crc)
        slow = ~plain
        offsets = head["queue_offset"]
        chosen = plain & (offsets >= first_offset) & (offsets < end_offset)
        while True:
            try:
                batch = self._plain_batch(records.only(chosen))
                break
            except NotPlain as odd:  # at most a few times: fewer records are left each time
                moved = np.flatnonzero(chosen)[odd.rows]
                slow[moved] = True
                chosen[moved] = False
        if not slow.any():
            return batch
        rows = list(self._slow_rows(data, starts, slow, wanted))
        return self._merged(batch, np.flatnonzero(chosen), rows)

    def _plain_batch(self, records: Records) -> pa.RecordBatch:
        if not len(records):
            return self._batch_of([])
        return PlainColumns(records, self._broker_name, self.schema).batch()

    def _slow_rows(
        self, data: bytes, starts: Longs, slow: Flags, wanted: range
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        for place in np.flatnonzero(slow).tolist():
            at = int(starts[place])
            for message in messages_at(data, at, check_crc=self._check_crc):
                if message.queue_offset in wanted:
                    yield place, row_of(message, self._broker_name, at)

    def _merged(self, batch: pa.RecordBatch, places: Longs, rows: Rows) -> pa.RecordBatch:
        """Plain and slow messages in the order of their records."""
        slow = self._batch_of([row for _, row in rows])
        if not batch.num_rows or not rows:
            return batch if batch.num_rows else slow
        both = pa.concat_batches([batch, slow])
        all_places = np.concatenate((places, np.array([place for place, _ in rows], np.int64)))
        return both.take(pa.array(np.argsort(all_places, kind="stable")))

    def _batch_of(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        arrays = [pa.array([row[field.name] for row in rows], field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
