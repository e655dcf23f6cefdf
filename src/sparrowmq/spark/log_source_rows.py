"""Records of the log to rows: the columns of a topic, where the record lies, what is damaged."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparrowmq.spark.decode import Decoder
from sparrowmq.spark.decode_heads import Longs
from sparrowmq.spark.errors import Damaged, RocketMQError
from sparrowmq.spark.log_source_files import LogRange
from sparrowmq.spark.log_source_options import DAMAGE, LOG_OFFSET, LogOptions, OnDamage
from sparrowmq.spark.log_source_read import Damage, Run, read_range
from sparrowmq.spark.schema import arrow_schema, read_columns

_TOPIC = "topic"


class LogDamaged(RocketMQError):
    """The log has damaged bytes, and the option onDamage wants the read to fail then."""


class LogRows:
    """Reads ranges of a log as batches of the chosen columns."""

    def __init__(self, options: LogOptions) -> None:
        own = {LOG_OFFSET.name, DAMAGE.name}
        wanted = [column.name for column in options.columns if column.name not in own]
        if options.topics and _TOPIC not in wanted:
            wanted.append(_TOPIC)
        self.schema = arrow_schema(options.columns)
        self._options = options
        self._decoder = Decoder(read_columns(wanted), options.broker_name or "")
        self._topics = pa.array(options.topics, pa.string())

    def batches(self, wanted: LogRange) -> Iterator[pa.RecordBatch]:
        """The rows of a range. Raises LogDamaged, LogFileError."""
        for found in read_range(wanted):
            parts = self._decoded(found) if isinstance(found, Run) else iter((found,))
            for part in parts:
                if not isinstance(part, Damage):
                    yield part
                elif (row := self._damage(part, wanted)) is not None:
                    yield row

    def _decoded(self, run: Run) -> Iterator[pa.RecordBatch | Damage]:
        """The rows of a run; a record whose content cannot be decoded is damage as well."""
        data, starts = run.data, run.starts
        while len(starts):
            try:
                yield self._batch(data, starts, run.log_offset)
                return
            except Damaged as damaged:
                fault = damaged
            at = int(np.searchsorted(starts, fault.position, "right")) - 1
            begin = int(starts[at])
            end = int(starts[at + 1]) if at + 1 < len(starts) else len(data)
            if at:
                # What is before it is decoded alone; it may hold another of the kind.
                before = Run(run.log_offset, data[:begin], starts[:at])
                yield from self._decoded(before)
            yield Damage(run.log_offset + begin, run.log_offset + end, fault.reason)
            data, starts = data[end:], starts[at + 1 :] - end
            run = Run(run.log_offset + end, data, starts)

    def _batch(self, data: bytes, starts: Longs, log_offset: int) -> pa.RecordBatch:
        batch = self._decoder.decode(data)
        offsets = starts + log_offset
        if batch.num_rows != len(starts):
            offsets = np.repeat(offsets, self._messages_in_each(data, starts))
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns[LOG_OFFSET.name] = pa.array(offsets)
        columns[DAMAGE.name] = pa.nulls(batch.num_rows, pa.string())
        if self._options.broker_name is None and "brokerName" in columns:
            columns["brokerName"] = pa.nulls(batch.num_rows, pa.string())
        made = self._of(columns)
        if not self._options.topics:
            return made
        return made.filter(pc.is_in(columns[_TOPIC], self._topics))

    def _messages_in_each(self, data: bytes, starts: Longs) -> list[int]:
        """How many rows each record makes: an inner batch is one record with several messages."""
        ends = [*starts[1:].tolist(), len(data)]
        pairs = zip(starts.tolist(), ends, strict=True)
        return [self._decoder.decode(data[start:end]).num_rows for start, end in pairs]

    def _damage(self, damage: Damage, wanted: LogRange) -> pa.RecordBatch | None:
        name = wanted.file.path.name
        text = f"{damage.end - damage.begin} bytes of log file {name}: {damage.reason}"
        match self._options.on_damage:
            case OnDamage.SKIP:
                return None
            case OnDamage.COLUMN:
                nothing = {field.name: pa.nulls(1, field.type) for field in self.schema}
                return self._of(
                    nothing
                    | {
                        LOG_OFFSET.name: pa.array([damage.begin], pa.int64()),
                        DAMAGE.name: pa.array([text]),
                    }
                )
            case OnDamage.FAIL:
                raise LogDamaged(
                    f"{wanted.file.path} is damaged at log offset {damage.begin}: {text}; set the"
                    " option onDamage to column to see such places as rows, to skip to go on"
                )

    def _of(self, columns: dict[str, Any]) -> pa.RecordBatch:
        arrays = [columns[field.name] for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
