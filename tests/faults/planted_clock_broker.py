"""A broker with a planted bug: delays follow the wall clock only, even when it is set."""

import sys
from pathlib import Path

from sparrowmq.broker.delivery.clock_steps import ClockSteps
from sparrowmq.cli import serve
from sparrowmq.cli.main import main
from tests.faults.set_clock_broker import SetClock

if __name__ == "__main__":
    data = Path(sys.argv[sys.argv.index("--data") + 1])
    setattr(serve, "system_clock", SetClock(data.parent))  # noqa: B010 - mypy forbids assigning
    setattr(ClockSteps, "since", lambda self, log_offset: 0)  # noqa: B010
    main()
