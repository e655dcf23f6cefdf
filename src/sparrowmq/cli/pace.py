"""`--rate N`: commands that send or show messages at most so many times per second.

A file of its own because commands of several nouns share it.
"""

import asyncio

import click

rate_option = click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="At most so many messages per second.",
)


class Pace:
    """Lets so many through per second, evenly; any number without a rate."""

    def __init__(self, rate: float | None) -> None:
        self._every_s = 0.0 if rate is None else 1 / rate
        self._next_s = 0.0

    async def wait(self) -> None:
        """Until the next one may go."""
        if not self._every_s:
            return
        now_s = asyncio.get_running_loop().time()
        start_s = max(now_s, self._next_s)
        self._next_s = start_s + self._every_s
        await asyncio.sleep(start_s - now_s)
