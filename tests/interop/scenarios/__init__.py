"""The scenarios by capability; importing this package lists all of them in the registry."""

from tests.interop.scenarios import (
    administration,
    consuming,
    cross,
    delivery,
    delivery_exchange,
    delivery_features,
    exchange,
    groups,
    latency,
    lookups,
    mixed_groups,
    pulling,
    restarts,
    sending,
    spark,
    wire,
)

__all__ = [
    "administration",
    "consuming",
    "cross",
    "delivery",
    "delivery_exchange",
    "delivery_features",
    "exchange",
    "groups",
    "latency",
    "lookups",
    "mixed_groups",
    "pulling",
    "restarts",
    "sending",
    "spark",
    "wire",
]
