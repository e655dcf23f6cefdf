"""Records of the log to rows: the columns of a topic, where the record lies, what is damaged."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparrowmq.spark.decode.decoder import Decoder
from sparrowmq.spark.decode.plain_columns import topics_of
from sparrowmq.spark.decode.record_heads import Flags, LaidOut
from sparrowmq.spark.errors import Damaged, RocketMQError
from sparrowmq.spark.log_files.options import DAMAGE, LOG_OFFSET, LogOptions, OnDamage
from sparrowmq.spark.log_files.ranges import LogRange
from sparrowmq.spark.log_files.reader import DamagedBytes, RecordRun, read_range
from sparrowmq.spark.schema import arrow_schema, read_columns

_TOPIC = "topic"


class LogDamaged(RocketMQError):
    """The log has damaged bytes, and the option onDamage asks to fail in that case."""


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
            parts = self._decoded(found) if isinstance(found, RecordRun) else iter((found,))
            for part in parts:
                if not isinstance(part, DamagedBytes):
                    yield part
                elif (row := self._damage(part, wanted)) is not None:
                    yield row

    def _decoded(self, run: RecordRun) -> Iterator[pa.RecordBatch | DamagedBytes]:
        """The rows of a run; a record whose content cannot be decoded is damage as well."""
        records, first = run.records, 0
        while first < len(records):
            try:
                yield self._batch(records.part(first, len(records)), run.log_offset)
                return
            except Damaged as damaged:
                fault = damaged
            at = int(np.searchsorted(records.starts, fault.position, "right")) - 1
            begin = int(records.starts[at])
            end = int(records.starts[at + 1]) if at + 1 < len(records) else run.end
            if at > first:
                # Decode the records before it separately; they may hold another such record.
                yield from self._decoded(RecordRun(run.log_offset, records.part(first, at), begin))
            yield DamagedBytes(run.log_offset + begin, run.log_offset + end, fault.reason)
            first = at + 1

    def _batch(self, records: LaidOut, log_offset: int) -> pa.RecordBatch:
        batch, places = self._decoder.decode_chosen(records, self._chosen(records))
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns[LOG_OFFSET.name] = pa.array(records.starts[places] + log_offset)
        columns[DAMAGE.name] = pa.nulls(batch.num_rows, pa.string())
        if self._options.broker_name is None and "brokerName" in columns:
            columns["brokerName"] = pa.nulls(batch.num_rows, pa.string())
        made = self._of(columns)
        if not self._options.topics or records.plain.all():
            return made
        # Only now are the topics of odd records known.
        return made.filter(pc.is_in(columns[_TOPIC], self._topics))

    def _chosen(self, records: LaidOut) -> Flags:
        """The records of the wanted topics, and those whose topic only decoding can tell."""
        chosen: Flags = np.ones(len(records), np.bool_)
        if not self._options.topics:
            return chosen
        plain = records.plain
        plain_ones = records.records if plain.all() else records.records.only(plain)
        try:
            topics = topics_of(plain_ones).cast(pa.string())
        except pa.ArrowInvalid:  # not UTF-8 somewhere; the decoder finds out where
            return chosen
        chosen[plain] = pc.is_in(topics, self._topics).to_numpy(zero_copy_only=False)
        return chosen

    def _damage(self, damage: DamagedBytes, wanted: LogRange) -> pa.RecordBatch | None:
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
                    " option onDamage to column to see such places as rows, or to skip to leave"
                    " them out"
                )

    def _of(self, columns: dict[str, Any]) -> pa.RecordBatch:
        arrays = [columns[field.name] for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
