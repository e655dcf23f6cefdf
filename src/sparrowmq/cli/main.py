"""The program `sparrowmq`. Commands are imported when they are used."""

import os
import sys

import click

from sparrowmq import __version__
from sparrowmq.cli.command_group import LazyGroup

_MODULES = {
    "nameserver": "servers",
    "broker": "servers",
    "up": "servers",
    "console": "console",
    "config": "config",
    "context": "context",
    "topic": "topic",
    "group": "group",
    "message": "message",
    "dlq": "dlq",
    "cluster": "cluster",
    "client": "client",
    "quota": "quota",
    "slave": "slave",
    "store": "store",
    "send": "send",
    "doctor": "doctor",
    "rebalance": "rebalance",
    "migrate": "migrate",
    "consume": "consume",
    "pipeline": "pipeline",
    "spark": "spark",
    "completion": "completion",
}
# `config` lists unknown variables itself; servers may need to report them as JSON.
_WARN_THEMSELVES = frozenset({"config", "nameserver", "broker", "up"})


@click.group(
    cls=LazyGroup,
    modules=_MODULES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="sparrowmq")
@click.pass_context
def app(ctx: click.Context) -> None:
    """Apache RocketMQ for Python and Spark people.

    \b
    A first look:
      sparrowmq up                              # a name server and a broker, until Ctrl-C
      sparrowmq send orders "hello"             # in another terminal
      sparrowmq consume orders --group billing
    """
    has_variables = any(name.upper().startswith("SPARROWMQ_") for name in os.environ)
    if has_variables and ctx.invoked_subcommand not in _WARN_THEMSELVES:
        from sparrowmq.cli.settings.environment import warn_of_unknown_variables

        warn_of_unknown_variables()


def main() -> None:
    """Entry point."""
    # Otherwise numpy's linear algebra, which we do not use, starts a thread for every core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        app(prog_name="sparrowmq")
    except OSError as error:  # a full disk under `> file`, for instance
        where = f"{error.filename}: " if error.filename else ""
        print(f"sparrowmq: {where}{error.strerror or error}", file=sys.stderr, flush=True)
        os._exit(1)  # an orderly exit would try to write the rest again


if __name__ == "__main__":
    main()
