"""The command line of the differential runs."""

import argparse
import sys

from tests.interop.oracles import sql92_run, strategy_run
from tests.interop.oracles.apache import missing_tool


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.oracles", description=__doc__)
    parser.add_argument("part", choices=("sql92", "strategies"))
    parser.add_argument("--cases", type=int, default=20_000, help="pairs, or cases per strategy")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", metavar="FILE", help="write the cases and Apache's answers")
    arguments = parser.parse_args()
    if (missing := missing_tool()) is not None:
        print(missing, file=sys.stderr)
        return 2
    part = sql92_run if arguments.part == "sql92" else strategy_run
    report = part.run(arguments.cases, arguments.seed, arguments.record)
    print(report)
    return 0 if report.is_equal else 1


if __name__ == "__main__":
    sys.exit(main())
