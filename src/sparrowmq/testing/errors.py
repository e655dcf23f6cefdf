"""How a simulation fails.

SimulationStuck            it cannot or does not come to an end
├── Deadlock
├── TimeLimitReached
└── Spinning
UnhandledError             something failed unnoticed
"""


class SimulationStuck(Exception):
    """The run cannot or does not come to an end; the text lists what waits where."""


class Deadlock(SimulationStuck):
    """Every task waits and no timer is set."""


class TimeLimitReached(SimulationStuck):
    """More virtual time passed than the test allows."""


class Spinning(SimulationStuck):
    """Callbacks keep coming without any time passing."""


class UnhandledError(Exception):
    """A callback failed, or a task failed and its result was not looked at."""
