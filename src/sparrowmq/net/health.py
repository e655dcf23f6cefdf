"""The pages /healthz and /readyz: a verdict for machines, and every check in words for users.

not ready
ok  it serves
no  it is registered: 127.0.0.1:9876 was not reached
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import NamedTuple

from sparrowmq.net.http_server import HttpAnswer


class Check(NamedTuple):
    """One condition that must hold."""

    what: str
    fault: str = ""
    """Why it does not hold; empty if it does."""

    def __str__(self) -> str:
        return f"no  {self.what}: {self.fault}" if self.fault else f"ok  {self.what}"


def is_fine(checks: Sequence[Check]) -> bool:
    """Whether every check passes."""
    return not any(check.fault for check in checks)


def alive(checks: Sequence[Check]) -> HttpAnswer:
    """The page /healthz: 200, or 503 if only a restart helps."""
    return _page("alive", checks)


def ready(checks: Sequence[Check]) -> HttpAnswer:
    """The page /readyz: 200, or 503 if clients should stay away for now."""
    return _page("ready", checks)


def _page(word: str, checks: Sequence[Check]) -> HttpAnswer:
    fine = is_fine(checks)
    lines = [word if fine else f"not {word}", *map(str, checks)]
    status = HTTPStatus.OK if fine else HTTPStatus.SERVICE_UNAVAILABLE
    return HttpAnswer("\n".join(lines) + "\n", status)
