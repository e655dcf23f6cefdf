"""`python -m tests.interop`: run unmodified clients against SparrowMQ, or record Apache."""

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import cast

from tests.interop import apache, registry, scenarios, sparrow, toolchain
from tests.interop.runner import EXPECTED, Run, Tally, Target

TARGETS: dict[str, ModuleType] = {"sparrow": sparrow, "apache": apache}
assert scenarios.__all__, "importing the scenarios fills the registry"


def main() -> int:
    """Parse, run, print the last line, and say by the exit code whether all is well."""
    args = _parser().parse_args()
    began_s = time.monotonic()
    clients = args.clients.split(",")
    words = args.k.lower().split("|")
    chosen = [one for one in registry.SCENARIOS if any(word in one.name for word in words)]
    if args.list:
        for one in chosen:
            print(f"{one.name}  [{' '.join(one.clients)}] {one.needs}")
        return 0
    brokers = ["apache"] if args.record_apache else args.brokers.split(",")
    tally = Tally()
    missing = _missing(clients, apache="apache" in brokers)
    if missing:
        for tool in missing:
            print(f"missing: {tool}", file=sys.stderr)
        tally.skipped = sum(len(set(one.clients) & set(clients)) for one in chosen) * len(brokers)
    else:
        _run(brokers, chosen, clients, tally, record=args.record_apache, keep=args.keep)
    if tally.run > 1:
        print(*tally.slowest(), sep="\n")
        print(f"{time.monotonic() - began_s:.0f} s, {_processor_s():.0f} s of processors")
    print(tally.line())
    return 1 if tally.failed or (tally.skipped and not args.allow_skip) else 0


def _missing(clients: list[str], *, apache: bool) -> list[str]:
    """What keeps us from running, registries that cannot be reached included."""
    missing = toolchain.missing_tools(clients, apache=apache)
    if not missing:
        try:
            toolchain.prepare(clients, apache=apache)
        except toolchain.ToolMissing as reason:
            missing.append(str(reason))
    return missing


def _processor_s() -> float:
    """What everything used that has ended, and we ourselves: it does not depend on others."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.interop", description=__doc__)
    parser.add_argument(
        "--allow-skip", action="store_true", help="do not fail if tools are missing"
    )
    parser.add_argument("--brokers", default="sparrow", help="sparrow, apache or both")
    parser.add_argument(
        "--clients", default=",".join(toolchain.CLIENTS), help="some of %(default)s"
    )
    parser.add_argument(
        "-k", default="", metavar="NAME", help="only scenarios with this (or|that) in the name"
    )
    parser.add_argument("--list", action="store_true", help="print the scenarios and stop")
    parser.add_argument(
        "--record-apache", action="store_true", help="run Apache's broker and record its outcomes"
    )
    parser.add_argument("--keep", metavar="DIR", help="keep servers' data and logs in DIR")
    return parser


def _run(
    brokers: list[str],
    chosen: list[registry.Scenario],
    clients: list[str],
    tally: Tally,
    *,
    record: bool,
    keep: str | None,
) -> None:
    with tempfile.TemporaryDirectory(prefix="interop-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        if keep:
            Path(keep).mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix="run-", dir=Path(keep).absolute()))
            print(f"data and logs: {folder}")
        for broker in brokers:
            target = cast("Target", TARGETS[broker])
            Run(target, folder, tally, print, compare=not record).run(chosen, clients)
    if record:
        _record(tally)


def _record(tally: Tally) -> None:
    """Keep what Apache's broker gave; scenarios that were not run keep their old outcome."""
    EXPECTED.mkdir(exist_ok=True)
    known = {one.name for one in registry.SCENARIOS if one.is_compared}
    for client, outcomes in tally.outcomes.items():
        file = EXPECTED / f"{client}.json"
        old = json.loads(file.read_text())["outcomes"] if file.exists() else {}
        merged = {name: out for name, out in sorted((old | outcomes).items()) if name in known}
        kept = {"apache": toolchain.APACHE_VERSION, "outcomes": merged}
        file.write_text(json.dumps(kept, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
