"""Whether a message passes a subscription, decided here as a broker would."""

from collections.abc import Mapping
from functools import lru_cache

from sparrowmq.admin.members import Subscription
from sparrowmq.protocol.properties import TAGS
from sparrowmq.protocol.sql92.errors import Sql92Error
from sparrowmq.protocol.sql92.filter import Sql92, compile_sql92
from sparrowmq.protocol.subscription import TAG
from sparrowmq.protocol.tags import parse_tags


def passes(wanted: Subscription, properties: Mapping[str, str]) -> bool:
    """Whether a message with these properties is wanted. A filter that cannot be read passes
    everything: then the doctor has nothing to say about it."""
    if wanted.kind == TAG:
        tags = _tags(wanted.expression)
        return not tags or properties.get(TAGS) in tags
    condition = _condition(wanted.expression)
    return condition is None or condition.matches(properties)


@lru_cache(maxsize=64)
def _tags(expression: str) -> tuple[str, ...]:
    try:
        return parse_tags(expression)
    except ValueError:
        return ()


@lru_cache(maxsize=64)
def _condition(expression: str) -> Sql92 | None:
    try:
        return compile_sql92(expression)
    except Sql92Error:
        return None
