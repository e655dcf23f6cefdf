"""Tables at a terminal, drawn by rich: imported only when the output is a terminal.

A row is one line whatever the terminal's width; the terminal wraps what is too long: a name that
rich had cut or broken into two lines could not be copied.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

_UNLIMITED = 1_000_000
"""Columns: more than any row has."""
_SLICE = 500
"""Rows drawn at once: rich takes 0.3 ms per row, and the first ones should appear at once."""


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column of texts."""

    title: str
    is_right: bool
    """Whether its cells are numbers."""


class TerminalTables:
    """Draws in the style that a stream supports: plain without one, or if it is not a terminal."""

    def __init__(self, stream: TextIO | None) -> None:
        # The environment decides about styles: NO_COLOR, TERM and whatever else rich reads.
        shown_on = Console(file=stream if stream is not None else io.StringIO())
        self._console = Console(
            file=io.StringIO(),
            width=_UNLIMITED,
            height=25,  # without a height, rich assumes that a dumb terminal is 80 wide
            force_terminal=shown_on.is_terminal,
            no_color=shown_on.no_color,
            legacy_windows=False,
        )

    def heading(self, text: str) -> str:
        """A line above a table."""
        return self._drawn(Text(text, style="bold"))[0]

    def lines(self, columns: Sequence[TextColumn], rows: Sequence[Sequence[str]]) -> Iterator[str]:
        """A line of titles, and one for each row."""
        texts = [[column.title for column in columns], *rows]
        widths = [max(map(cell_len, cells)) for cells in zip(*texts, strict=True)]
        for start in range(0, len(rows), _SLICE):
            table = _empty_table(columns, widths, with_titles=not start)
            for row in rows[start : start + _SLICE]:
                table.add_row(*map(Text, row))
            yield from self._drawn(table)

    def _drawn(self, what: Table | Text) -> list[str]:
        with self._console.capture() as captured:
            self._console.print(what, soft_wrap=isinstance(what, Text))
        return [line.rstrip() for line in captured.get().splitlines()]


def _empty_table(
    columns: Sequence[TextColumn], widths: Sequence[int], *, with_titles: bool
) -> Table:
    table = Table(
        box=None,
        show_header=with_titles,
        header_style="none",  # titles are bold, but not the spaces after them
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for column, width in zip(columns, widths, strict=True):
        table.add_column(
            Text.assemble((column.title, "bold")),
            justify="right" if column.is_right else "left",
            width=width,
            no_wrap=True,
        )
    return table
