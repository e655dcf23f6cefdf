"""The program `sparrowmq`. Commands are imported when they are used."""

import os
from collections.abc import Callable
from importlib import import_module

import click

from sparrowmq import __version__

# command → (module, function that makes the click commands of that module)
_LAZY = {
    "nameserver": "server_commands",
    "broker": "server_commands",
    "up": "server_commands",
    "config": "server_commands",
    "topic": "topic_commands",
    "store": "store_commands",
    "send": "message_commands",
    "consume": "message_commands",
    "pipeline": "pipeline_commands",
    "spark": "spark_commands",
}


class LazyGroup(click.Group):
    """Knows the names of its commands; imports the one that is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        return [name for name in _LAZY if self._module(name) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        make = self._module(cmd_name)
        if make is None:
            return None
        return next((command for command in make() if command.name == cmd_name), None)

    def _module(self, name: str) -> Callable[[], list[click.Command]] | None:
        module = _LAZY.get(name)
        if module is None:
            return None
        made: Callable[[], list[click.Command]] = getattr(
            import_module(f"sparrowmq.cli.{module}"), module
        )
        return made


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sparrowmq")
def app() -> None:
    """Apache RocketMQ for Python and Spark people."""


def main() -> None:
    """Entry point."""
    # numpy's linear algebra, which we do not use, starts a thread for every core otherwise.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    app(prog_name="sparrowmq")


if __name__ == "__main__":
    main()
