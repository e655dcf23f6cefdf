"""How a simulation fails.

SimulationStuck            the run cannot or does not end
├── Deadlock
├── TimeLimitReached
└── Spinning
UnhandledError             a failure went unnoticed
"""


class SimulationStuck(Exception):
    """The run cannot or does not end; the text lists what waits where."""


class Deadlock(SimulationStuck):
    """Every task waits and no timer is set."""


class TimeLimitReached(SimulationStuck):
    """More virtual time passed than the test allows."""


class Spinning(SimulationStuck):
    """Callbacks keep coming without any time passing."""


class UnhandledError(Exception):
    """A callback failed, or a task failed and its result was never retrieved."""
