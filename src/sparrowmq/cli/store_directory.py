"""What commands on a store directory share: the directory, one-sentence errors, progress."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click

from sparrowmq.cli.option_types import Whole
from sparrowmq.disk.errors import DiskError
from sparrowmq.disk.real_disk import RealDisk
from sparrowmq.store.errors import StoreError
from sparrowmq.store.messages import Damage, StartProgress

if TYPE_CHECKING:
    from sparrowmq.store.inspect.verify import StoreFinding

FINE, DAMAGED, UNREADABLE = 0, 1, 2
"""Exit codes."""

_SUGGESTED = 3

Show: TypeAlias = "Callable[[StartProgress | Damage | StoreFinding], None]"

directory_argument = click.argument(
    "directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False)
)
slots_option = click.option(
    "--index-slots",
    type=Whole(min=1),
    default=5_000_000,
    show_default=True,
    help="maxHashSlotNum",
)
entries_option = click.option(
    "--index-entries",
    type=Whole(min=1),
    default=20_000_000,
    show_default=True,
    help="maxIndexNum",
)


def disk_of(directory: Path) -> RealDisk:
    """The disk of a store. Ends the command with exit code 2 if there is no store."""
    if not directory.is_dir():
        click.echo(
            f"{directory} is not a directory; give the one that a broker has as --data", err=True
        )
        sys.exit(UNREADABLE)
    if not (directory / "commitlog").is_dir():
        inside = sorted(log.parent for log in directory.glob("*/commitlog"))
        more = " or another" if len(inside) > _SUGGESTED else ""
        some = " or ".join(map(str, inside[:_SUGGESTED])) + more
        meant = f"; did you mean {some}?" if inside else ""
        click.echo(f"{directory} holds no store: there is no commitlog in it{meant}", err=True)
        sys.exit(UNREADABLE)
    return RealDisk(directory)


@contextmanager
def refusals() -> Iterator[None]:
    """Report what stops a command in one sentence; say nothing about a closed pipe."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (DiskError, StoreError, OSError, ValueError) as error:
        click.echo(str(error), err=True)
        sys.exit(UNREADABLE)


@contextmanager
def progress(*, quiet: bool, findings: bool = True) -> Iterator[Show]:
    """Print findings as lines unless the command lists them itself, and progress as a bar on a
    terminal."""
    if quiet or not sys.stderr.isatty():

        def show_lines(event: "StartProgress | Damage | StoreFinding") -> None:
            if not quiet and findings and not isinstance(event, StartProgress):
                click.echo(str(event))

        yield show_lines
        return
    from rich.progress import Progress as Bar

    with Bar(transient=True) as bar:
        task = bar.add_task("reading the log", total=None)

        def show(event: "StartProgress | Damage | StoreFinding") -> None:
            if isinstance(event, StartProgress):
                bar.update(task, completed=event.done, total=event.total)
            elif findings:
                bar.console.print(str(event), markup=False, highlight=False)

        yield show
