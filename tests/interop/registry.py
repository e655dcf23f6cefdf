"""The scenarios: functions with sentences for names, listed as their modules are imported."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.interop.scene import Scene

Outcome = dict[str, Any]
JAVA = ("java5", "java4")
PYTHON = ("python",)
EVERY_CLIENT = (*JAVA, "go", *PYTHON)


@dataclass(frozen=True)
class Scenario:
    """One scenario: what runs, which clients can, and which capability the broker needs."""

    name: str
    run: Callable[[Scene], Outcome]
    clients: tuple[str, ...]
    needs: str
    lane: str
    """What it may run in parallel with.

    shared: on the common cluster, one after the other for each client. apart: on servers of its
    own, several beside each other. spark: one after the other, there is one Spark in a process.
    quiet: it measures, so only others that mostly wait run beside it, and each has servers of its
    own or leaves the common ones as they are. alone: while nothing else runs.
    """
    is_compared: bool
    """Its outcome must equal the one recorded from Apache's broker."""
    lasts_s: int = 0
    """Roughly, if that is more than half a minute. In its lane the longest starts first."""


SCENARIOS: list[Scenario] = []


def scenario(
    *,
    clients: tuple[str, ...] = EVERY_CLIENT,
    needs: str = "core",
    lane: str = "shared",
    compared: bool = True,
    lasts_s: int = 0,
) -> Callable[[Callable[[Scene], Outcome]], Callable[[Scene], Outcome]]:
    """Register a function as a scenario."""

    def register(function: Callable[[Scene], Outcome]) -> Callable[[Scene], Outcome]:
        name = function.__name__.replace("_", " ")
        SCENARIOS.append(Scenario(name, function, clients, needs, lane, compared, lasts_s))
        return function

    return register


def check(holds: bool, what: str) -> None:
    """What must hold on any broker, whatever was recorded."""
    if not holds:
        raise AssertionError(what)
