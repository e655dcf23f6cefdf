"""Messages of a store as plain values, for users and for programs that read JSON lines."""

import base64
from collections.abc import Iterator
from typing import Any

import msgspec

from sparrowmq.disk.disk import Disk
from sparrowmq.protocol.hosts import decode_host, format_address
from sparrowmq.protocol.properties import KEYS, TAGS, UNIQUE_KEY, decode_properties
from sparrowmq.protocol.record import Record
from sparrowmq.store.files import StoreFiles
from sparrowmq.store.layout import log_path
from sparrowmq.store.recovery.log_scan import FileEnd, Hole

_COLUMNS = (KEYS, TAGS, UNIQUE_KEY)


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages to dump."""

    start: int | None = None
    """Log offset where a record starts; None for the first."""
    stop: int | None = None
    """Log offset just past the last."""
    topic: str | None = None
    queue_id: int | None = None
    key: str | None = None
    """One of the message's keys, or its unique id."""
    limit: int | None = None


class DumpedHole(msgspec.Struct, frozen=True):
    """Bytes that are not a message."""

    path: str
    position: int
    length: int
    reason: str


def dump(disk: Disk, choice: Choice) -> Iterator[Record | DumpedHole]:
    """The chosen messages in the order of the log, and every hole on the way.

    Raises StoreCorrupted or OSError for what cannot be read at all.
    """
    files = StoreFiles(disk)
    file_size = files.log_file_size()
    count = 0
    for found in files.scan(choice.start):
        match found:
            case FileEnd():
                continue
            case Hole(is_tail=True):
                return
            case Hole():
                path = log_path(found.start - found.start % file_size)
                length = found.end - found.start
                yield DumpedHole(path, found.start % file_size, length, found.reason)
            case Record():
                if choice.stop is not None and found.log_offset >= choice.stop:
                    return
                if _is_chosen(found, choice):
                    yield found
                    count += 1
                    if count == choice.limit:
                        return


def _is_chosen(record: Record, choice: Choice) -> bool:
    if choice.topic is not None and record.topic != choice.topic:
        return False
    if choice.queue_id is not None and record.queue_id != choice.queue_id:
        return False
    if choice.key is None:
        return True
    properties = decode_properties(record.properties)
    keys = [properties.get(UNIQUE_KEY, ""), *properties.get(KEYS, "").split(" ")]
    return choice.key in keys


def as_json(found: Record | DumpedHole) -> dict[str, Any]:
    """One line: a text body as `body`, any other as `bodyBase64`."""
    if isinstance(found, DumpedHole):
        return {"damaged": msgspec.structs.asdict(found)}
    properties = decode_properties(found.properties)
    line: dict[str, Any] = {
        "topic": found.topic,
        "queueId": found.queue_id,
        "queueOffset": found.queue_offset,
        "logOffset": found.log_offset,
        "size": found.size,
        "storeTimestamp": found.store_timestamp,
        "bornTimestamp": found.born_timestamp,
        "bornHost": _address(found.born_host),
        "storeHost": _address(found.store_host),
        "sysFlag": found.sys_flag,
        "flag": found.flag,
        "reconsumeTimes": found.reconsume_times,
        "preparedTransactionOffset": found.prepared_transaction_offset,
        "keys": properties.get(KEYS, ""),
        "tags": properties.get(TAGS, ""),
        "msgId": properties.get(UNIQUE_KEY, ""),
        "properties": {name: text for name, text in properties.items() if name not in _COLUMNS},
    }
    try:
        line["body"] = found.body.decode()
    except UnicodeDecodeError:
        line["bodyBase64"] = base64.b64encode(found.body).decode()
    return line


def _address(host: bytes) -> str:
    return format_address(decode_host(host))
