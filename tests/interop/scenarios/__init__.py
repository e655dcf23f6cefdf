"""The scenarios by capability; importing this package lists all of them in the registry."""

from tests.interop.scenarios import (
    administration,
    consuming,
    cross,
    delivery,
    delivery_exchange,
    exchange,
    groups,
    latency,
    lookups,
    pulling,
    restarts,
    sending,
    wire,
)

__all__ = [
    "administration",
    "consuming",
    "cross",
    "delivery",
    "delivery_exchange",
    "exchange",
    "groups",
    "latency",
    "lookups",
    "pulling",
    "restarts",
    "sending",
    "wire",
]
