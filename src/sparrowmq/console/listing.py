"""Long lists: filtered by a pattern, sorted and paged; the address holds all of this state."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

T = TypeVar("T")

ROWS = 50
MOST_PATTERN = 255
"""Characters: names are not longer, and a pattern becomes a regular expression."""


@dataclass(frozen=True, slots=True)
class Sort:
    """What a list is sorted by."""

    column: str
    is_down: bool

    @classmethod
    def of(cls, text: str, columns: Sequence[str]) -> "Sort":
        """`-lag` sorts by lag, the largest first. An unknown column means the first one."""
        column = text.removeprefix("-")
        return cls(column, text.startswith("-")) if column in columns else cls(columns[0], False)

    def __str__(self) -> str:
        return f"-{self.column}" if self.is_down else self.column


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    """One page of a list."""

    rows: tuple[T, ...]
    number: int
    """The page number, from 1."""
    pages: int
    found: int
    """Rows that match, on all pages."""
    total: int
    """Rows without the pattern."""
    sort: Sort
    query: Mapping[str, str]

    def link(self, **changes: str) -> str:
        """The query string of the same list with some changes."""
        query = {name: text for name, text in {**self.query, **changes}.items() if text}
        return f"?{urlencode(query)}"

    def sorted_by(self, column: str) -> str:
        """The query string of the list sorted by a column, or reversed if it already is."""
        is_same = self.sort.column == column
        turned = column if is_same and self.sort.is_down else f"-{column}"
        if not is_same and column == "name":
            turned = column
        return self.link(sort=turned, page="")

    def aria_sort(self, column: str) -> str:
        """The `aria-sort` value of a column, for screen readers."""
        if self.sort.column != column:
            return "none"
        return "descending" if self.sort.is_down else "ascending"


def matches(pattern: str, name: str) -> bool:
    """Whether a name matches: a pattern with * or ? has to match all of it, other text a part of
    it. Ignores case."""
    pattern, name = pattern.lower(), name.lower()
    if "*" in pattern or "?" in pattern:
        return fnmatchcase(name, pattern)
    return pattern in name


def part_of(
    names: Sequence[T],
    query: Mapping[str, str],
    *,
    key: Callable[[T], str] = str,
    orders: Mapping[str, Callable[[T], Any]] | None = None,
) -> ListPage[T]:
    """The page that the query asks for. `orders` are sort keys besides the name; None sorts
    last."""
    pattern = query.get("match", "").strip()[:MOST_PATTERN]
    found = [each for each in names if not pattern or matches(pattern, key(each))]
    sort = Sort.of(query.get("sort", ""), ("name", *(orders or {})))
    by = (orders or {}).get(sort.column, key)
    known = [each for each in found if by(each) is not None]
    known.sort(key=by, reverse=sort.is_down)
    ordered = [*known, *(each for each in found if by(each) is None)]
    pages = max(1, -(-len(ordered) // ROWS))
    wanted = query.get("page", "1")
    number = min(max(1, int(wanted) if wanted.isdecimal() and len(wanted) < 7 else 1), pages)
    rows = tuple(ordered[(number - 1) * ROWS : number * ROWS])
    return ListPage(rows, number, pages, len(ordered), len(names), sort, query)
