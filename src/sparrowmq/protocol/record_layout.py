"""The layout of a commit log record, RocketMQ's format of messages on disk and in pull replies.

```
 0 total size 4        36 sysFlag 4                       then  reconsume times 4
 4 magic 4             40 born timestamp 8                      prepared-transaction offset 8
 8 body CRC 4          48 born host 8 (IPv6: 20)                body length 4, body
12 queue id 4          .. store timestamp 8                     topic length 1 (v1) or 2 (v2), topic
16 flag 4              .. store host 8 (IPv6: 20)               properties length 2, properties
20 queue offset 8
28 physical offset 8   (the record's own position in the log)
```

The optional whole-record CRC is the last property: `__CRC32#` 0x01, ten decimal digits, least
significant first, 0x02 (MessageDecoder.createCrc32). It covers every byte before it. A Java
consumer sees one more system property; nothing else changes.

A log file ends with a blank: the size of the rest of the file, and its own magic.

This is the only declaration of the layout.

Only the standard library is imported: Spark's executors read records too, and have neither msgspec
nor the rest of the broker's dependencies.
"""

from itertools import accumulate
from struct import Struct

from sparrowmq.protocol.properties import CRC32
from sparrowmq.protocol.sys_flag import BORN_HOST_V6, STORE_HOST_V6

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
"""Marks records with a two-byte topic length (MessageVersion.MESSAGE_VERSION_V2)."""
TOPIC_LENGTH_SIZES = {MAGIC_V1: 1, MAGIC_V2: 2}
MAGIC_BYTES = tuple(magic.to_bytes(4, "big") for magic in TOPIC_LENGTH_SIZES)
MAX_V1_TOPIC = 127  # Java reads the one-byte length as signed

BLANK = Struct(">II")
"""A blank's two fields, size and magic; a record begins with the same two."""
BLANK_MAGIC = 0xCBD43194

_FIELDS = {
    "size": ("I", ">u4"),
    "magic": ("I", ">u4"),
    "body_crc": ("I", ">u4"),
    "queue_id": ("i", ">i4"),
    "flag": ("i", ">i4"),
    "queue_offset": ("q", ">i8"),
    "log_offset": ("q", ">i8"),
    "sys_flag": ("i", ">i4"),
    "born_timestamp": ("q", ">i8"),
    "born_host": ("8s", "u8"),
    "store_timestamp": ("q", ">i8"),
    "store_host": ("8s", "u8"),
    "reconsume_times": ("i", ">i4"),
    "prepared_transaction_offset": ("q", ">i8"),
    "body_size": ("i", ">i4"),
}
"""The head's fields, each with its codes for `struct` and numpy; both assume IPv4 hosts."""

HEAD_DTYPE = [(name, code) for name, (_, code) in _FIELDS.items()]
"""The head of a record with IPv4 hosts, for `numpy.dtype`. A host is one opaque number."""

HOSTS_V6 = BORN_HOST_V6 | STORE_HOST_V6
_HOST_BITS = (0, BORN_HOST_V6, STORE_HOST_V6, HOSTS_V6)
IPV6_MORE_BYTES = 12
"""How much longer an IPv6 host is than an IPv4 one."""


def head_codes(first: str, last: str, host_bits: int = 0) -> str:
    """The `struct` format of the fields from `first` to `last`, inclusive."""
    names = list(_FIELDS)
    is_v6 = {"born_host": host_bits & BORN_HOST_V6, "store_host": host_bits & STORE_HOST_V6}
    chosen = names[names.index(first) : names.index(last) + 1]
    return "".join("20s" if is_v6.get(name) else _FIELDS[name][0] for name in chosen)


def head_of(*names: str) -> Struct:
    """A Struct that reads these fields of a head with IPv4 hosts, in record order."""
    codes = (
        code if name in names else f"{Struct(code).size}x" for name, (code, _) in _FIELDS.items()
    )
    return Struct(">" + "".join(codes))


HEADS = {bits: Struct(f">{head_codes('size', 'body_size', bits)}") for bits in _HOST_BITS}
"""The whole head, by the two sysFlag bits that mark hosts as IPv6."""

_sizes = (Struct(f">{code}").size for code, _ in _FIELDS.values())
AT = dict(zip(_FIELDS, accumulate(_sizes, initial=0), strict=False))
"""Each field's position in a record with IPv4 hosts; up to `born_host`, in any record."""

HEAD_SIZE = HEADS[0].size
MIN_RECORD_SIZE = HEAD_SIZE + 1 + 2
"""Size of a v1 record with IPv4 hosts and an empty body, topic and properties."""

SYS_FLAG = Struct(">i")
SYS_FLAG_AT = AT["sys_flag"]
_TIMESTAMP = Struct(">q")
_STORE_TIMESTAMP_AT = AT["store_timestamp"]
STORE_TIMESTAMP_BYTES = _STORE_TIMESTAMP_AT + IPV6_MORE_BYTES + _TIMESTAMP.size
"""How many of a record's first bytes `store_timestamp` needs."""

CRC_HEAD = CRC32.encode() + b"\x01"
"""How the whole-record CRC property begins."""
CRC_END = 2
CRC_PROPERTY_SIZE = len(CRC_HEAD) + 10 + 1
CRC_ALIKE = 7
"""If this many of that property's ten fixed bytes match, it is one that was damaged."""


def store_timestamp(head: bytes) -> int:
    """A record's store time, from its first STORE_TIMESTAMP_BYTES bytes."""
    is_v6 = SYS_FLAG.unpack_from(head, SYS_FLAG_AT)[0] & BORN_HOST_V6
    at = _STORE_TIMESTAMP_AT + (IPV6_MORE_BYTES if is_v6 else 0)
    time: int = _TIMESTAMP.unpack_from(head, at)[0]
    return time
