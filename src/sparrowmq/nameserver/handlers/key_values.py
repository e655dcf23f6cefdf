"""Key-value configuration by namespace."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from sparrowmq.disk.errors import DiskFull
from sparrowmq.nameserver.checks import check_name, check_range
from sparrowmq.net.audit import audit
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.nameserver import (
    DeleteKvConfig,
    GetKvConfig,
    KvConfigFound,
    ListKvConfig,
    PutKvConfig,
)

if TYPE_CHECKING:
    from sparrowmq.nameserver.server import NameServer

log = logging.getLogger(__name__)
routes: Routes[NameServer] = Routes()

_MAX_VALUE_BYTES = 64 * 1024
_MAX_ALL_BYTES = 4 * 1024 * 1024
"""Bounded, because every change rewrites the whole file."""


@routes.on(PutKvConfig)
def put_kv_config(server: NameServer, request: Request[PutKvConfig]) -> Reply:
    """Set a value; it is durable before the answer is sent."""
    namespace, key, value = request.header.namespace, request.header.key, request.header.value
    check_name("namespace", namespace)
    check_name("key", key)
    size_bytes = len(value.encode())
    check_range("size of the value in bytes", size_bytes, 0, _MAX_VALUE_BYTES)
    total_bytes = server.kv.size_bytes + size_bytes + len(key)
    check_range("size of all values in bytes", total_bytes, 0, _MAX_ALL_BYTES)
    _change(server, key, lambda: server.kv.put(namespace, key, value))
    audit(request, "set %r in namespace %r", key, namespace)
    return Reply()


@routes.on(GetKvConfig)
def get_kv_config(server: NameServer, request: Request[GetKvConfig]) -> Reply:
    """One value."""
    namespace, key = request.header.namespace, request.header.key
    value = server.kv.get(namespace, key)
    if value is None:
        text = f"there is no key {key[:255]!r} in namespace {namespace[:255]!r}"
        raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, text)
    return Reply(KvConfigFound(value=value))


@routes.on(DeleteKvConfig)
def delete_kv_config(server: NameServer, request: Request[DeleteKvConfig]) -> Reply:
    """Remove a value; a missing one has been removed already."""
    namespace, key = request.header.namespace, request.header.key
    _change(server, key, lambda: server.kv.delete(namespace, key))
    audit(request, "removed %r from namespace %r", key, namespace)
    return Reply()


@routes.on(ListKvConfig)
def list_kv_config(server: NameServer, request: Request[ListKvConfig]) -> Reply:
    """All values of a namespace."""
    namespace = request.header.namespace
    table = server.kv.table(namespace)
    if table is None:
        text = f"there is no namespace {namespace[:255]!r}"
        raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, text)
    return Reply(body=table.to_json())


def _change(server: NameServer, topic: str, change: Callable[[], None]) -> None:
    try:
        # Not in a worker: operators do this rarely, by hand, and the next request must see it.
        change()
    except (OSError, DiskFull) as error:
        log.exception("the key-value configuration could not be saved")
        text = "the change could not be saved and was not made; the name server's log says why"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text) from error
    server.table.encoded.forget(topic)
