"""Who changed what: a line for every action of an operator."""

import logging
from typing import Any

from sparrowmq.net.routes import Request

_log = logging.getLogger("sparrowmq.audit")


def note(request: Request[Any], action: str) -> None:
    """Record an action that has been carried out."""
    _log.info("%s: %s", request.connection.peer, action)
