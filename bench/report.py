"""The report: a table on the terminal, and as JSON and Markdown to keep."""

import json
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.figures import Figure
from bench.machine import Machine

COLUMNS = ("work", "figure", "peer", "SparrowMQ", "ratio", "target", "")
_QUIET_CPUS = 0.25
_WIDTH = 150
"""Of a table that goes into a file."""


def show(machine: Machine, figures: list[Figure], rows: list[dict[str, Any]]) -> None:
    """Print it."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in COLUMNS:
        is_number = column in ("peer", "SparrowMQ", "ratio")
        table.add_column(column, justify="right" if is_number else "left", no_wrap=True)
    for figure in figures:
        style = "red" if figure.is_met is False else None
        table.add_row(*cells(figure), style=style)
    console.print(table)
    for line in [*machine.lines(), noise(machine, rows), summary(figures)]:
        console.print(line)


def cells(figure: Figure) -> list[str]:
    """One line of the table."""
    verdict = {True: "met", False: "MISSED", None: ""}[figure.is_met]
    return [
        figure.work,
        f"{figure.what} ({figure.unit})" if figure.unit else figure.what,
        "–" if figure.peer is None else number(figure.peer),
        number(figure.ours),
        "–" if figure.ratio is None else f"{figure.ratio:.2f} ×",
        "" if figure.target is None else str(figure.target),
        verdict,
    ]


def number(value: float) -> str:
    """Three digits that mean something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def noise(machine: Machine, rows: Iterable[dict[str, Any]]) -> str:
    """How much the rest of the machine disturbed the runs."""
    others = [row["other_cpus"] for row in rows if "other_cpus" in row]
    if not others:
        return f"load before: {machine.load_before:.1f}"
    worst, usual = max(others), median(others)
    verdict = "quiet" if usual <= _QUIET_CPUS else "NOISY: other processes took part"
    return (
        f"others used {usual:.2f} CPUs (median of runs, at most {worst:.2f}),"
        f" load before {machine.load_before:.1f}: {verdict}"
    )


def summary(figures: list[Figure]) -> str:
    """How many targets are met."""
    judged = [figure for figure in figures if figure.is_met is not None]
    met = sum(figure.is_met is True for figure in judged)
    return f"{met} of {len(judged)} targets met"


def save(
    folder: Path, name: str, machine: Machine, figures: list[Figure], rows: list[dict[str, Any]]
) -> list[Path]:
    """Write both files; where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {
        "machine": machine.to_dict(),
        "noise": noise(machine, rows),
        "figures": [figure.to_dict() for figure in figures],
        "runs": rows,
    }
    paths = [folder / f"{name}.json", folder / f"{name}.md"]
    paths[0].write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    paths[1].write_text(markdown(machine, figures, rows))
    return paths


def markdown(machine: Machine, figures: list[Figure], rows: list[dict[str, Any]]) -> str:
    """The table for a document."""
    header = [*COLUMNS[:-1], "met"]
    lines = ["| " + " | ".join(header) + " |", "|---|---|--:|--:|--:|---|---|"]
    lines += ["| " + " | ".join(cells(figure)) + " |" for figure in figures]
    lines += ["", *machine.lines(), noise(machine, rows), summary(figures)]
    return "\n".join(lines) + "\n"
