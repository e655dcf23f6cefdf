"""Reading a piece of a queue: large pulls, the next one under way while one is decoded.

    broker ── pull ──▶ bytes ── collect 8,192 messages or 4 MiB ──▶ Decoder ──▶ RowFilter ──▶ Spark

Runs on executors: standard library, numpy and pyarrow only.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.sys_flag import PULL_SUBSCRIPTION
from sparrowmq.spark.decode.decoder import Decoder
from sparrowmq.spark.errors import BrokerAway, ClusterUnreachable, DataLoss, ServerRefused
from sparrowmq.spark.offsets import QueueRange
from sparrowmq.spark.options import Options
from sparrowmq.spark.positions import GO_ON, went_back
from sparrowmq.spark.pushdown import RowCondition, RowFilter, tag_condition, tag_expression
from sparrowmq.spark.read_plan import loss_text
from sparrowmq.spark.schema import SparkColumn
from sparrowmq.spark.wire.cluster import VALID_END, RemoteCluster, epoch_field
from sparrowmq.spark.wire.remoting import Answer, Patience, Remoting

READ_GROUP = "TOOLS_CONSUMER"
"""Pulls use a group that every broker has: an operator's reset or lock of the user's own group must
not change what a range of offsets means."""

ROWS_AT_ONCE = 8192
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PulledRecords:
    """The records of a pull, and the offset at which to continue."""

    next_offset: int
    parts: tuple[bytes, ...] = ()
    """The bytes of the records, as received."""


def read_range(
    piece: QueueRange,
    options: Options,
    columns: tuple[SparkColumn, ...],
    conditions: Iterable[RowCondition] = (),
    *,
    address: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """The messages of a piece as batches.

    `address` is where its broker was last seen, so that no name server is needed. Raises
    DataLoss, BrokerAway, ServerRefused and Damaged.
    """
    conditions = list(conditions)
    pushed_tags = None if options.sql or options.tags else tag_expression(conditions)
    tags = options.tags or pushed_tags
    rows = RowFilter(columns, [*conditions, *tag_condition(options.tags)])
    decoder = Decoder(rows.columns, piece.queue.broker_name, check_crc=options.check_crc)
    with options.cluster() as cluster:
        puller = _Puller(cluster, piece, options, tags, address)
        for data in _collected(puller, options.pull_bytes):
            batch = rows.apply(decoder.decode(data, piece.start, puller.end))
            if batch.num_rows:
                yield batch


def _collected(puller: "_Puller", most_bytes: int) -> Iterator[bytes]:
    """The pulls, joined so that the decoder gets thousands of messages at once."""
    parts: list[bytes] = []
    size = count = 0
    for first, pulled in puller.pulls():
        parts += pulled.parts
        size += sum(map(len, pulled.parts))
        count += pulled.next_offset - first
        if count >= ROWS_AT_ONCE or size >= most_bytes:
            yield b"".join(parts)
            parts, size, count = [], 0, 0
    if size:
        yield b"".join(parts)


class _Puller:
    """The pulls that reading one piece of a queue takes."""

    def __init__(
        self,
        cluster: RemoteCluster,
        piece: QueueRange,
        options: Options,
        tags: str | None,
        address: str | None,
    ) -> None:
        self._cluster = cluster
        self._piece = piece
        self.end = piece.end
        """Where the piece ends; earlier than planned if the queue went back since."""
        self._options = options
        self._patience = Patience(options.retry_timeout_s)
        self._address = address
        self._broker: Remoting | None = None
        self._is_asked = False
        """Whether the next pull is under way already."""
        self._expression = options.sql or tags or "*"
        self._is_filtered = self._expression != "*"

    def pulls(self) -> Iterator[tuple[int, PulledRecords]]:
        """Each requested offset with the records received, until the end of the piece."""
        queue, offset = self._piece.queue, self._piece.start
        try:
            while offset < self.end:
                asked = offset
                pulled = self._patience.call(f"reading {queue}", partial(self._pull, asked))
                offset = pulled.next_offset
                if offset < self.end:
                    self._ask_ahead(offset)
                if pulled.parts:
                    yield asked, pulled
        finally:
            if self._broker is not None:
                self._broker.close()

    def _pull(self, offset: int) -> PulledRecords:
        try:
            answer = self._answer(offset)
        except ClusterUnreachable:
            self._leave_broker()
            raise
        if VALID_END in answer.fields:
            self._check_end(int(answer.fields[VALID_END]))
            if offset >= self.end:
                return PulledRecords(self.end)
        queue = self._piece.queue
        match answer.code:
            case ResponseCode.SUCCESS:
                return PulledRecords(_next(answer), answer.body_parts)
            case ResponseCode.PULL_RETRY_IMMEDIATELY if _next(answer) > offset:
                earliest = int(answer.fields.get("minOffset", "0"))
                if not self._is_filtered or earliest > offset:
                    self._lost(offset, max(earliest, _next(answer)))
                return PulledRecords(_next(answer))
            case ResponseCode.PULL_OFFSET_MOVED:
                return self._moved(offset, answer)
            case ResponseCode.PULL_NOT_FOUND | ResponseCode.PULL_RETRY_IMMEDIATELY:
                latest = answer.fields.get("maxOffset", "?")
                self._leave_broker()
                raise BrokerAway(
                    f"{queue} was to be read up to {self._piece.end}, but ends at {latest} now;"
                    " the broker is a slave that lacks them, or has lost its newest messages"
                )
            case _:
                assert self._broker is not None
                if answer.code == ResponseCode.TOPIC_NOT_EXIST:  # a slave may not have it yet
                    self._cluster.wait_for_master(queue, answer.remark)
                raise ServerRefused(
                    self._broker.address, "PULL_MESSAGE", answer.code, answer.remark
                )

    def _answer(self, offset: int) -> Answer:
        if self._broker is None:
            queue = self._piece.queue
            if self._address is None:
                self._cluster.known_route(queue.topic)
                self._address = self._cluster.address(queue.topic, queue.broker_name)
            self._broker = Remoting(self._address, self._options.request_timeout_s)
        is_asked, self._is_asked = self._is_asked, False
        if is_asked:
            return self._broker.finish()
        return self._broker.call(RequestCode.PULL_MESSAGE, self._fields(offset))

    def _leave_broker(self) -> None:
        """Ask the name server on the next attempt: the broker may have moved, or its master may be
        back."""
        if self._broker is not None:
            self._broker.close()
        self._broker = self._address = None

    def _ask_ahead(self, offset: int) -> None:
        """Let the broker prepare the next pull while this one is decoded."""
        if self._broker is not None:
            with suppress(ClusterUnreachable):  # the real pull will run into it again
                self._broker.start(RequestCode.PULL_MESSAGE, self._fields(offset))
                self._is_asked = True

    def _fields(self, offset: int) -> dict[str, str]:
        queue = self._piece.queue
        most = self._options.pull_messages
        if not self._is_filtered:
            most = min(most, self.end - offset)
        return {
            "consumerGroup": READ_GROUP,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "queueOffset": str(offset),
            "maxMsgNums": str(most),
            "maxMsgBytes": str(self._options.pull_bytes),
            "sysFlag": str(PULL_SUBSCRIPTION),
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subVersion": "0",
            "subscription": self._expression,
            "expressionType": "SQL92" if self._options.sql else "TAG",
            **epoch_field(self._piece.epoch),
        }

    def _check_end(self, good: int) -> None:
        """End the piece where its epoch ends: the log has another epoch now than when the piece was
        planned, so later messages are new and come with the next batch."""
        if good >= self.end:
            return
        text = f"{went_back(self._piece.queue, self.end, good)}. {GO_ON}"
        if self._options.fail_on_data_loss:
            raise DataLoss(text)
        _log.warning("%s", text)
        self.end = good

    def _moved(self, offset: int, answer: Answer) -> PulledRecords:
        earliest = int(answer.fields.get("minOffset", "0"))
        if offset < earliest:
            self._lost(offset, earliest)
            return PulledRecords(min(earliest, self._piece.end))
        latest = answer.fields.get("maxOffset", "?")
        text = (
            f"{self._piece.queue}: offset {offset} was wanted, but the queue ends at {latest}."
            " Was the topic deleted and created again? Set failOnDataLoss=false to continue"
        )
        if self._options.fail_on_data_loss:
            raise DataLoss(text)
        _log.warning("%s", text)
        return PulledRecords(self._piece.end)

    def _lost(self, wanted: int, earliest: int) -> None:
        text = loss_text(self._piece.queue, wanted, min(earliest, self._piece.end))
        if self._options.fail_on_data_loss:
            raise DataLoss(text)
        _log.warning("%s", text)


def _next(answer: Answer) -> int:
    return int(answer.fields["nextBeginOffset"])
