"""The unique id of every row: the same one each time Spark writes the same row again.

    write and partition 8 | row in its partition 4 | CRC of the row 4        in upper-case hex

It becomes the message's UNIQ_KEY, which consumers and the source show as msgId. A task that Spark
repeats, or a micro-batch that it repeats after a crash, sends its rows under the ids they had, and
readers can tell. The CRC is for rows that come in another order the second time, as behind a
shuffle: two different rows would get one id otherwise, and a reader would drop one of them.
"""

from hashlib import blake2b
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrowmq.protocol.crc import crc32
from sparrowmq.protocol.properties import UNIQUE_KEY

_HEAD = f"{UNIQUE_KEY}\x01".encode()
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_DIGITS = np.concatenate([np.repeat(_HEX, 16)[:, None], np.tile(_HEX, 16)[:, None]], axis=1)
"""Two digits for each byte."""
KEY_PROPERTY_BYTES = len(_HEAD) + 32 + 1


class RowKeys:
    """Ids for the rows of one partition of one write, in their order."""

    def __init__(self, write_id: str, partition_id: int) -> None:
        digest = blake2b(f"{write_id} {partition_id}".encode(), digest_size=8)
        self._stem = np.frombuffer(_HEAD + digest.hexdigest().upper().encode(), np.uint8)
        self._rows = 0

    def next(self, crcs: npt.NDArray[np.uint32]) -> pa.Array:
        """The property with the id, for as many rows as there are CRCs."""
        count = len(crcs)
        rows = np.arange(self._rows, self._rows + count).astype(np.uint32)
        self._rows += count
        numbers = np.stack([rows, crcs], axis=1).astype(">u4")
        text = np.empty((count, KEY_PROPERTY_BYTES), np.uint8)
        stem_end = len(self._stem)
        text[:, :stem_end] = self._stem
        text[:, stem_end:-1] = _DIGITS[numbers.view(np.uint8)].reshape(count, 16)
        text[:, -1] = 2
        return pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(KEY_PROPERTY_BYTES), count, [None, pa.py_buffer(text)]
        ).cast(pa.binary())


def row_crcs(data: memoryview, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """The CRC of every piece of `data`; `ends` begins with the start of the first."""
    pieces = pairwise(ends.tolist())
    return np.array([crc32(data[start:end]) for start, end in pieces], np.uint32)
