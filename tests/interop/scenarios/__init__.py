"""The scenarios by capability; importing this package lists all of them in the registry."""

from tests.interop.scenarios import (
    consuming,
    lookups,
    pulling,
    sending,
    wire,
)

__all__ = ["consuming", "lookups", "pulling", "sending", "wire"]
