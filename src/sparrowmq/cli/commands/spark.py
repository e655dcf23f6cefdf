"""`sparrowmq spark package`: what a Spark cluster needs of this package."""

from pathlib import Path

import click

from sparrowmq.cli.command_group import Group
from sparrowmq.cli.output import Report, Value
from sparrowmq.cli.shell import Shell, json_option


@click.group("spark", cls=Group)
def app() -> None:
    """Prepare a Spark cluster for the source and the sink."""


def commands() -> list[click.Command]:
    """For the program."""
    return [app]


@app.command("package")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path(),
    show_default="the current directory",
    help="The file to write, if the name ends with .zip, else a directory for it.",
)
@json_option
def build_package(out: Path, as_json: bool) -> None:
    """Build the zip that executors need, and show how to use it.

    Executors need pyspark, numpy and pyarrow beside it; the machine that submits needs the package
    installed, so that Spark finds the formats rocketmq and rocketmq-log there.

    \b
    Example:
      sparrowmq spark package --out dist
    """
    from sparrowmq.spark.package import submit_line, write_package

    try:
        written = write_package(out)
    except OSError as error:
        raise click.ClickException(str(error)) from error
    size, line = written.stat().st_size, submit_line(written)
    if as_json:
        facts: dict[str, Value] = {"file": str(written), "bytes": size, "submit": line}
        Shell(name_servers="", as_json=True).show(Report([], facts=facts))
        return
    click.echo(f"{written} ({size // 1024} KiB)")
    click.echo(line)
