"""What `async with` means for producers and consumers: open now, stop in the end."""

from types import TracebackType
from typing import Self


class OpenBlock:
    """Something that is opened by a block. What did not open to its end is stopped as well."""

    async def _open(self) -> None:
        raise NotImplementedError

    async def stop(self) -> None:
        """Stop what was opened; does nothing when nothing was."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()
