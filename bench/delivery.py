"""`python -m bench.delivery [--quick] [--pending N]`: delayed, timed and transactional messages.

Needs no Java. Ratios compare CPU times in the same run, so that they mean the same on any machine.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from bench import report
from bench.contest import Effort
from bench.delivery_cpu import ratios_of_a_broker
from bench.delivery_due import due_at_once, due_steadily
from bench.delivery_filters import filters
from bench.delivery_pending import pending
from bench.delivery_sends import ratios
from bench.figures import Figure
from bench.machine import this_machine

_PENDING = 10_000_000
_PENDING_QUICK = 1_000_000


def delivery(folder: Path, effort: Effort) -> list[Figure]:
    """Everything; ten million pending timers need some minutes and 8 GB of disk."""
    return measure(folder, _PENDING if effort == Effort() else _PENDING_QUICK)


def measure(folder: Path, pending_count: int) -> list[Figure]:
    """The figures, each part in a separate folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return [
        *ratios_of_a_broker(folder / "cpu"),
        *ratios(folder / "sends"),
        *filters(folder / "filters"),
        *due_at_once(folder / "due"),
        *due_steadily(folder / "steady"),
        *pending(folder / "pending", pending_count),
    ]


def main() -> int:
    """Exit code 1 when a target is missed and --strict is given."""
    parser = argparse.ArgumentParser(prog="bench.delivery", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the pending timers")
    parser.add_argument("--pending", type=int, default=0, metavar="N", help="so many of them")
    parser.add_argument("--strict", action="store_true", help="a missed target is a failure")
    arguments = parser.parse_args()
    count = arguments.pending or (_PENDING_QUICK if arguments.quick else _PENDING)
    machine = this_machine()
    with tempfile.TemporaryDirectory(prefix="sparrowmq-bench-") as folder:
        figures = measure(Path(folder), count)
    report.show(machine, figures, [])
    is_missed = any(figure.is_met is False for figure in figures)
    return 1 if arguments.strict and is_missed else 0


if __name__ == "__main__":
    sys.exit(main())
