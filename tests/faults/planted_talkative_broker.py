"""A broker with two planted bugs: a failing handler, and an answer that discloses the failure."""

import traceback
from typing import Any

from sparrowmq.cli.main import main
from sparrowmq.net.connection import Connection
from sparrowmq.net.routes import Reply
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.store.reader import Reader


def _fails(*_: object) -> int:
    raise RuntimeError("planted")


def _tells(connection: Connection, error: Exception, request: object) -> Reply:
    text = "".join(traceback.format_exception(error))
    return Reply(code=ResponseCode.SYSTEM_ERROR, remark=text)


def _plant(owner: Any, name: str, bug: object) -> None:
    assert hasattr(owner, name)
    setattr(owner, name, bug)


if __name__ == "__main__":
    for name in ("find_by_key", "earliest_store_time", "queue_offset_by_time"):
        _plant(Reader, name, _fails)
    _plant(Connection, "_reply_to_error", _tells)
    main()
