"""Subscriptions: what a group wants of a topic, as announced in heartbeats."""

from typing import Self

from sparrowmq.protocol.body import Body
from sparrowmq.protocol.tags import ALL_TAGS, parse_tags, tag_code

TAG = "TAG"
SQL92 = "SQL92"


class SubscriptionData(Body, frozen=True, kw_only=True):
    """One topic and its filter expression."""

    topic: str
    sub_string: str = ALL_TAGS
    tags_set: frozenset[str] = frozenset()
    code_set: frozenset[int] = frozenset()
    sub_version: int = 0
    """When the subscription was created or changed, ms; the broker keeps the newest."""
    expression_type: str = TAG
    class_filter_mode: bool = False

    @classmethod
    def build(
        cls, topic: str, expression: str | None, *, version: int, expression_type: str = TAG
    ) -> Self:
        """The subscription a consumer announces. Raises ValueError for an empty expression.

        Tags: `A || B`, or `*` / empty / None for everything. SQL92: a condition on properties.
        """
        if expression_type != TAG:
            if not expression:
                raise ValueError(f"a {expression_type} subscription needs an expression")
            return cls(
                topic=topic,
                sub_string=expression,
                sub_version=version,
                expression_type=expression_type,
            )
        tags = parse_tags(expression)
        return cls(
            topic=topic,
            sub_string=expression if expression and tags else ALL_TAGS,
            tags_set=frozenset(tags),
            code_set=frozenset(map(tag_code, tags)),
            sub_version=version,
        )

    @property
    def is_tag(self) -> bool:
        """Whether the expression is about tags; older clients leave the type out."""
        return not self.expression_type or self.expression_type == TAG

    @property
    def takes_all(self) -> bool:
        """Whether every message of the topic passes."""
        return self.sub_string == ALL_TAGS

    def takes_code(self, code: int) -> bool:
        """Whether a consume-queue unit with this tag hash may hold a wanted message."""
        return self.sub_string == ALL_TAGS or code in self.code_set

    def takes_tag(self, tag: str | None) -> bool:
        """Whether a message with this tag is wanted; hashes may collide, strings do not."""
        return self.sub_string == ALL_TAGS or not self.tags_set or tag in self.tags_set
