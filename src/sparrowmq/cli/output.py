"""What does not keep a command from running: said in a line for people, or in one of the log."""

import logging
import os
from collections.abc import Callable

import click

Warn = Callable[[str], None]


def tell_warning(text: str) -> None:
    """A line for people."""
    click.echo(f"warning: {text}", err=True)


def log_warning(text: str) -> None:
    """A line of the log, for those who read that with a program."""
    logging.getLogger("sparrowmq").warning("%s", text)


def warn_of_unknown_variables(warn: Warn = tell_warning) -> None:
    """A mistyped variable would keep its setting's default unseen."""
    if not any(name.upper().startswith("SPARROWMQ_") for name in os.environ):
        return  # and nothing has to be imported
    from sparrowmq.cli.settings.environment import unknown_variables
    from sparrowmq.cli.settings.servers import all_settings

    for unknown in unknown_variables(os.environ, all_settings()):
        warn(unknown.text)
