"""The scenarios by capability; importing this package lists all of them in the registry."""

from tests.interop.scenarios import (
    administration,
    consuming,
    delivery,
    groups,
    latency,
    lookups,
    pulling,
    sending,
    wire,
)

__all__ = [
    "administration",
    "consuming",
    "delivery",
    "groups",
    "latency",
    "lookups",
    "pulling",
    "sending",
    "wire",
]
