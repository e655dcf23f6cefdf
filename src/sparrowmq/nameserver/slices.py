"""Long work on the loop, in slices: 50,000 topics of one broker take a tenth of a second."""

import asyncio
from collections.abc import Generator
from typing import TypeVar

SLICE_S = 0.005
"""How long the loop is held at once, by all such work together."""

T = TypeVar("T")


class Slices:
    """Divides the loop's time among everything that works in slices."""

    def __init__(self) -> None:
        self.active = 0
        """How much of it is under way."""

    async def run(self, work: Generator[None, None, T]) -> T:
        """Do work that yields wherever the loop may run; returns its result."""
        now_s = asyncio.get_running_loop().time
        self.active += 1
        try:
            ends_s = now_s() + SLICE_S / self.active
            while True:
                try:
                    next(work)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]  # T, says the generator's type
                if now_s() >= ends_s:
                    await asyncio.sleep(0)
                    ends_s = now_s() + SLICE_S / self.active
        finally:
            self.active -= 1
