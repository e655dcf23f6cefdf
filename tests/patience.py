"""Patience for tests on real servers: a machine that freezes for a moment is not a failure."""

import inspect
from collections.abc import Callable
from typing import Any

from sparrowmq.admin.admin import Admin
from sparrowmq.blocking.admin import Admin as BlockingAdmin
from sparrowmq.client.config import ClientConfig
from sparrowmq.client.sending.producer import Producer

PATIENCE_S = 120.0
"""How long anything may take; it costs time only where something is broken."""

_DEFAULTS: tuple[tuple[type, tuple[str, ...]], ...] = (
    (ClientConfig, ("name_server_timeout_s", "call_timeout_s", "connect_timeout_s")),
    (Producer, ("timeout_s",)),
    (Admin, ("timeout_s",)),
    (BlockingAdmin, ("timeout_s",)),
)


def be_patient(set_item: Callable[[dict[str, Any], str, float], None] = dict.__setitem__) -> None:
    """From now on clients of this process give servers more than the 3 s of RocketMQ's default."""
    for kind, names in _DEFAULTS:
        defaults = inspect.unwrap(kind.__init__).__kwdefaults__  # type: ignore[misc]  # of this class
        for name in names:
            assert name in defaults, f"{kind.__name__} has no setting {name}"
            set_item(defaults, name, PATIENCE_S)


PATIENT = "from tests.patience import be_patient; be_patient()\n"
"""For separate programs: they run in the root of the repository and begin with this."""
