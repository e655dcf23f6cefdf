"""Settings: shown to operators, and changed until the next start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrowmq.config_fields import ConfigError
from sparrowmq.nameserver.config import CHANGEABLE
from sparrowmq.net.audit import audit
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.nameserver import (
    GetNameServerConfig,
    NameServerConfigFound,
    UpdateNameServerConfig,
)

if TYPE_CHECKING:
    from sparrowmq.nameserver.server import NameServer

routes: Routes[NameServer] = Routes()

_MAX_BYTES = 64 * 1024


@routes.on(GetNameServerConfig)
def get_config(server: NameServer, request: Request[GetNameServerConfig]) -> Reply:
    """`name=value` lines, by Apache's names."""
    header = NameServerConfigFound(changeable=",".join(CHANGEABLE))
    return Reply(header, server.config.to_properties().encode())


@routes.on(UpdateNameServerConfig)
def update_config(server: NameServer, request: Request[UpdateNameServerConfig]) -> Reply:
    """Change settings, all of them or none."""
    changes = _read_properties(request.body)
    for name in changes:
        if name not in CHANGEABLE:
            allowed = ", ".join(CHANGEABLE)
            text = f"{name[:80]!r} cannot be changed while the server runs; {allowed} can"
            raise RequestRefused(ResponseCode.NO_PERMISSION, text)
    try:
        server.config = server.config.with_changes(changes)
    except ConfigError as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error
    server.table.encoded.clear()
    audit(request, "changed settings %s", changes)
    return Reply()


def _read_properties(body: bytes) -> dict[str, str]:
    if len(body) > _MAX_BYTES:
        text = f"settings of {len(body)} bytes, at most {_MAX_BYTES} allowed"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
    try:
        lines = [line.strip() for line in body.decode().splitlines()]
    except UnicodeDecodeError as error:
        text = f"settings are not UTF-8 at byte {error.start}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text) from error
    pairs = [line.partition("=") for line in lines if line and line[0] not in "#!"]
    for name, equals, _ in pairs:
        if not equals:
            text = f"settings are name=value lines, not {name[:80]!r}"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
    return {name.strip(): value.strip() for name, _, value in pairs}
