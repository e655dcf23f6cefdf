"""The audit trail: one log line for every change that an operator makes over the wire.

Name servers and brokers write the same line with a dedicated logger, so that operators can separate
these lines from the rest of the log.
"""

import logging
from typing import Any

from sparrowmq.net.routes import Request

_log = logging.getLogger("sparrowmq.audit")


def audit(request: Request[Any], action: str, *facts: object) -> None:
    """Record a change that has been made: `action` is a format string for `facts`."""
    _log.info(f"audit: %s {action}", request.connection.peer, *facts)
