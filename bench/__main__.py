"""`python -m bench [--quick] [SUITE …]`: measure, compare, report."""

import argparse
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import alone, report
from bench.contest import QUICK, Effort, contest, learn
from bench.driver import DriverFailed
from bench.figures import Figure
from bench.machine import ROOT, this_machine
from bench.suites import SUITES
from tests.interop.toolchain import ToolMissing, missing_tools

NAMES = (*SUITES, *alone.ALONE)
RESULTS = ROOT / "bench" / "results"


def main() -> int:
    """Exit code 0 also where a target is missed, unless --strict."""
    arguments = _parse()
    if missing := missing_tools(("java5",), apache=True):
        print("bench needs " + "; ".join(missing), file=sys.stderr)
        return 2
    machine = this_machine()
    figures: list[Figure] = []
    rows: list[dict[str, Any]] = []
    failure = ""
    try:
        _measure(arguments, figures, rows)
    except (DriverFailed, ToolMissing, TimeoutError) as error:
        failure = str(error)
    except KeyboardInterrupt:
        failure = "interrupted"
    report.show(machine, figures, rows)
    if arguments.save:
        name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{machine.commit}"
        for path in report.save(RESULTS, name, machine, figures, rows):
            print(path.relative_to(ROOT))
    if failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    is_missed = any(figure.is_met is False for figure in figures)
    return 1 if arguments.strict and is_missed else 0


def _measure(
    arguments: argparse.Namespace, figures: list[Figure], rows: list[dict[str, Any]]
) -> None:
    """Figures and runs are added as they come, so that a failure keeps the earlier ones."""
    effort = QUICK if arguments.quick else Effort()
    if arguments.runs:
        effort = replace(effort, runs=arguments.runs)
    if arguments.messages:
        effort = replace(effort, stored=arguments.messages)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sparrowmq-bench-")))
        for sync_flush in (False, True):
            chosen = [
                suite
                for name, suite in SUITES.items()
                if name in arguments.suites and suite.sync_flush is sync_flush
            ]
            if not chosen:
                continue
            with contest(folder / f"sync-{sync_flush}", effort, sync_flush=sync_flush) as both:
                both.rows = rows
                learn(both)
                for suite in chosen:
                    figures += suite.measure(both)
        for name, measure in alone.ALONE.items():
            if name in arguments.suites:
                figures += measure(folder / name, effort)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"some of {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="a short run of about two minutes")
    parser.add_argument("--runs", type=int, default=0, help="runs of each kind")
    parser.add_argument(
        "--messages",
        type=int,
        default=0,
        help=f"messages in the log of the suite backlog ({Effort().stored:,}; 364 bytes each)",
    )
    parser.add_argument(
        "--save", action="store_true", help=f"save the results in {RESULTS.relative_to(ROOT)}"
    )
    parser.add_argument("--strict", action="store_true", help="fail if a target is missed")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.suites) - set(NAMES))
    if unknown:
        parser.error(f"no suite {', '.join(unknown)}; there are {', '.join(NAMES)}")
    if not arguments.suites:
        quick = [name for name, suite in SUITES.items() if suite.is_quick]
        arguments.suites = quick if arguments.quick else list(NAMES)
    return arguments


if __name__ == "__main__":
    sys.exit(main())
