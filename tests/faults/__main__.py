"""`python -m tests.faults [--row N] [--small] [--seed S] [--only TEXT] [--faults KINDS]`: run the
fault scorecard and print its counts and seeds."""

import argparse
import logging
import sys
import time
import traceback
from functools import partial

from tests.faults.campaign_faults import FAULTS
from tests.faults.checker import commit
from tests.faults.scorecard import KEPT, ROWS, resource_abuse
from tests.faults.scorecard_everything import everything
from tests.faults.scorecard_replication import replication
from tests.faults.scored import Row, Scored
from tests.faults.spark_jobs import spark_jobs
from tests.faults.watched_loops import too_long, watched

_SHOWN = 5
_WATCHED = (1, 8, 9, 10, 11, 12, 17)
"""Rows whose brokers and name servers run under the watchdog, on asyncio's own loop. Rows 7 and 13
judge times and memory of the loop that is shipped, and run once more under the watchdog; row 20
watches by itself. The brokers of row 16 are threads of the process that runs Spark's jobs: a
watchdog would time the driver, which holds the interpreter. Rows 2 to 6 are about stores, and the
brokers of row 3 and some of row 1 run under strace."""


def main() -> int:
    """Run the chosen rows and print the table; 1 if one is not met."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument(
        "--row",
        type=int,
        action="append",
        choices=sorted(ROWS),
        dest="rows",
        help="run only this row; may be repeated",
    )
    parser.add_argument("--small", action="store_true", help="the size that ./dev test uses")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random (0)")
    parser.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help="run only a part of row 7, such as 'slow disk', of row 8, such as storms, of row 16,"
        " such as archive, or of row 20, such as 'processes, sync'",
    )
    parser.add_argument(
        "--faults",
        type=lambda text: tuple(text.split(",")),
        default=("all",),
        metavar="KINDS",
        help=f"the faults of row 20: all, or some of {','.join(FAULTS)};"
        " driver needs full size and Spark",
    )
    arguments = parser.parse_args()
    kinds = tuple(FAULTS) if arguments.faults == ("all",) else arguments.faults
    if unknown := set(kinds) - set(FAULTS):
        parser.error(f"--faults: {', '.join(sorted(unknown))} is none of {', '.join(FAULTS)}")
    if arguments.only and arguments.rows not in ([7], [8], [16], [20]):
        parser.error("--only chooses among the parts of --row 7, --row 8, --row 16 or --row 20")
    # What simulated servers log about their faults is not the table.
    logging.getLogger("sparrowmq").addHandler(logging.NullHandler())
    print(f"commit {commit()}, seed {arguments.seed}, {'small' if arguments.small else 'full'}")
    print(f"{'#':>2}  {'fault':<30} {'result':<8} {'seconds':>7}  counts", flush=True)
    chosen: dict[int, Row] = {
        7: partial(resource_abuse, only=arguments.only),
        8: partial(replication, only=arguments.only),
        16: partial(spark_jobs, only=arguments.only),
        20: partial(everything, kinds=kinds, only=arguments.only),
    }
    rows = ROWS | chosen
    scored: list[Scored] = []
    for row in arguments.rows or sorted(ROWS):
        began = time.monotonic()
        try:
            if row in _WATCHED:
                with watched() as loops:
                    result = rows[row](arguments.seed, arguments.small)
                result.counts += f"\n    {loops}"
                result.failures += [] if arguments.small else too_long(loops.stalls)
            else:
                result = rows[row](arguments.seed, arguments.small)
        except Exception as error:
            traceback.print_exc()
            result = Scored(row, "could not be judged", failures=[repr(error)])
        scored.append(result)
        took = time.monotonic() - began
        word = "met" if result.is_met else "NOT MET"
        print(f"{row:>2}  {result.fault:<30} {word:<8} {took:>7.1f}  {result.counts}", flush=True)
        for failure in result.failures[:_SHOWN]:
            print(f"    {failure}", flush=True)
        if len(result.failures) > _SHOWN:
            print(f"    and {len(result.failures) - _SHOWN} more")
    if simulated := sum(result.simulated for result in scored):
        print(f"15  {'simulated clusters':<30} {'':<8} {'':>7}  {simulated} seeds in these rows")
    failed = [result.row for result in scored if not result.is_met]
    if failed:
        print(f"not met: {failed}; what could be kept is in {KEPT}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
