"""Java's numbers: fields that are stored in files of fixed width, or told to Java clients."""

from typing import Annotated, TypeAlias

from msgspec import Meta

Int: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Long: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
