"""The stacks that a member sends, in the order in which an operator reads them.

    task work                        thread 140213
      call (/…/handler_calls.py:2)     File "/…/handler_threads.py", line 60, in _do
      book (/shop/ledger.py:4)         File "/shop/bill.py", line 3, in handle

Python's members send a block for each task and thread. Blocks in which a handler is at work come
first, then others with code of the program; blocks without any are Python's and SparrowMQ's own
business. Java's stacks are left as they are.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_HANDLERS = ("handler_calls.py", "handler_threads.py")
_PATH = re.compile(r'^File "(?P<thread>[^"]+)", line \d+|\((?P<task>[^()]+):\d+\)$')
_LIBRARY = re.compile(
    r"^<|[/\\](lib[/\\]python3(\.\d+)?|Lib)[/\\](?!site-packages|dist-packages)"
    r"|[/\\](src|site-packages|dist-packages)[/\\]sparrowmq[/\\]"
)
"""Files of the standard library and of SparrowMQ."""


@dataclass(frozen=True, slots=True)
class _Stack:
    title: str
    lines: tuple[str, ...]

    @property
    def is_handling(self) -> bool:
        return any(each in line for line in self.lines for each in _HANDLERS)

    @property
    def own_frames(self) -> list[str]:
        """Frames of the program, the innermost last; in a handler those that it calls."""
        found: list[str] = []
        for line in self.lines:
            text = line.strip()
            place = _PATH.search(text)
            path = "" if place is None else place["thread"] or place["task"]
            if path.endswith(_HANDLERS):
                found.clear()
            elif path and not _LIBRARY.search(path):
                found.append(text)
        return found


def handler_frame(stacks: str) -> str:
    """The innermost frame of the program in the first handler at work; empty where there is
    none."""
    for each in _parsed(stacks):
        if each.is_handling and (frames := each.own_frames):
            return frames[-1]
    return ""


def readable_stacks(stacks: str) -> list[str]:
    """Lines with the program's own code: handlers first, equal stacks once."""
    parsed = list(_parsed(stacks))
    if not parsed:
        return stacks.splitlines()
    own = [each for each in parsed if each.own_frames]
    own.sort(key=lambda each: not each.is_handling)
    hidden = len(parsed) - len(own)
    lines = [line for text in _collapsed(own) for line in text]
    if hidden:
        lines.append(f"{hidden} more without code of the program: --all-stacks shows them")
    return lines


def _collapsed(stacks: Iterable[_Stack]) -> Iterator[list[str]]:
    alike: dict[tuple[str, ...], list[str]] = {}
    for each in stacks:
        alike.setdefault(each.lines, []).append(each.title)
    for lines, (title, *more) in alike.items():
        yield [f"{title}, and {len(more)} more like it" if more else title, *lines]


def _parsed(stacks: str) -> Iterator[_Stack]:
    """Nothing for what is not Python's."""
    title, lines = "", list[str]()
    for line in stacks.splitlines():
        if line.startswith(("task ", "thread ")):
            if title:
                yield _Stack(title, tuple(lines))
            title, lines = line, []
        else:
            lines.append(line)
    if title:
        yield _Stack(title, tuple(lines))
