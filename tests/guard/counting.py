"""Counts what Python does: calls of functions, written in Python or in C, and instructions."""

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Work:
    """What was counted."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.instructions: Counter[str] = Counter()

    def per(self, many: int) -> tuple[float, float]:
        """Calls and instructions for each of so many messages."""
        return self.calls.total() / many, self.instructions.total() / many

    def table(self, many: int) -> str:
        """Which functions, most expensive first, per message."""
        names = sorted(self.calls | self.instructions, key=self._weight, reverse=True)
        lines = [
            f"{self.calls[name] / many:8.2f} {self.instructions[name] / many:10.1f}  {name}"
            for name in names
        ]
        return "\n".join(["   calls instructions", *lines])

    def _weight(self, name: str) -> int:
        return self.instructions[name] + 20 * self.calls[name]


ROUNDS = 3
"""How often `count` acts."""


def count(act: Callable[[], None]) -> Work:
    """Act once to fill caches, then with calls counted, then with instructions counted."""
    work = Work()
    act()
    with _no_collection():
        with _calls(work.calls):
            act()
        with _instructions(work.instructions):
            act()
    return work


@contextmanager
def _calls(calls: Counter[str]) -> Iterator[None]:
    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            calls[_name(frame)] += 1
        elif event == "c_call":
            calls[getattr(argument, "__qualname__", repr(argument))] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


@contextmanager
def _instructions(instructions: Counter[str]) -> Iterator[None]:
    def note(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "call":
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
        elif event == "opcode":
            instructions[_name(frame)] += 1
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        yield
    finally:
        sys.settrace(before)


@contextmanager
def _no_collection() -> Iterator[None]:
    """What the collector would call depends on what was made before."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _name(frame: FrameType) -> str:
    code = frame.f_code
    folder, _, file = code.co_filename.rpartition("/")
    return f"{folder.rpartition('/')[2]}/{file} {code.co_qualname}"
