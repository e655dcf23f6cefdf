"""Java's numbers: types of fields that Java clients read, or that files hold in a fixed width.

Separate from `java`, which Spark's executors load without msgspec.
"""

from typing import Annotated, TypeAlias

from msgspec import Meta

Int: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Long: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
