"""Log files written as a broker does, and read back as rows."""

from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from sparrowmq.protocol.record import encode_blank, encode_record, topic_part
from sparrowmq.spark.log_files.options import parse_log_options
from sparrowmq.spark.log_files.ranges import log_files, log_ranges
from sparrowmq.spark.log_files.rows import LogRows

FILE_SIZE = 4096
HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
HOST_V6 = bytes(15) + b"\x01" + HOST[4:]


class LogWriter:
    """Writes log files as a broker does."""

    def __init__(self, directory: Path, file_size: int = FILE_SIZE) -> None:
        self.directory = directory
        self.file_size = file_size
        self.offsets: list[int] = []
        self._log = bytearray()

    def add(
        self,
        body: bytes,
        *,
        topic: str = "orders",
        properties: bytes = b"UNIQ_KEY\x01A1\x02",
        host: bytes = HOST,
        record_crc: bool = True,
        sys_flag: int = 0,
    ) -> int:
        """Append a record; where it lies."""
        made = self._encode(len(self._log), body, topic, properties, host, record_crc, sys_flag)
        left = self.file_size - len(self._log) % self.file_size
        if len(made) + 8 > left:
            self._log += encode_blank(left).ljust(left, b"\0")
            made = self._encode(len(self._log), body, topic, properties, host, record_crc, sys_flag)
        self.offsets.append(len(self._log))
        self._log += made
        return self.offsets[-1]

    def _encode(self, at: int, body: bytes, topic: str, properties: bytes, host: bytes,
                record_crc: bool, sys_flag: int) -> bytes:  # fmt: skip
        return encode_record(
            topic_part(topic), 1, 0, len(self.offsets), at, sys_flag, 1_700_000_000_000, host,
            1_700_000_000_001, host, 0, 0, body, properties, record_crc=record_crc,
        )  # fmt: skip

    def change(self, at: int, data: bytes) -> None:
        self._log[at : at + len(data)] = data

    def read(self, at: int, length: int) -> bytes:
        return bytes(self._log[at : at + length])

    def write(self) -> Path:
        log = self.directory / "commitlog"
        log.mkdir(parents=True, exist_ok=True)
        for start in range(0, max(1, len(self._log)), self.file_size):
            part = bytes(self._log[start : start + self.file_size])
            (log / f"{start:020d}").write_bytes(part.ljust(self.file_size, b"\0"))
        return self.directory


def rows(directory: Path, **options: str) -> Any:
    """All rows, range by range, as one table."""
    parsed = parse_log_options({"path": str(directory)} | options)
    reader = LogRows(parsed)
    ranges = log_ranges(log_files(parsed.path), parsed.max_bytes_per_partition)
    batches = [batch for one in ranges for batch in reader.batches(one)]
    return pa.Table.from_batches(batches, reader.schema)


def offsets(directory: Path, **options: str) -> list[int]:
    """Where the records lie that are read."""
    return rows(directory, **options)["logOffset"].to_pylist()  # type: ignore[no-any-return]


messages = st.lists(
    st.tuples(
        st.binary(min_size=1, max_size=300),
        st.sampled_from(["orders", "t" * 200]),
        st.sampled_from([HOST, HOST_V6]),
        st.booleans(),
    ),
    max_size=60,
)
"""Body, topic, host, and whether the record has its own CRC."""


def hundred_messages(directory: Path) -> LogWriter:
    """Every fourth of them a refund, the others orders."""
    made = LogWriter(directory)
    for at in range(100):
        made.add(b"message %03d" % at, topic="orders" if at % 4 else "refunds")
    return made
