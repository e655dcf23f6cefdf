"""Tag expressions such as `created || paid`, and the hash that consume queues keep of a tag.

Standard library only: Spark's executors read expressions without msgspec.
"""

from functools import lru_cache

from sparrowmq.protocol.java import java_hash

ALL_TAGS = "*"

# String.trim removes every character up to the space, and nothing else
_JAVA_BLANKS = "".join(map(chr, range(33)))


def parse_tags(expression: str | None) -> tuple[str, ...]:
    """The tags of an expression in their order, () for all (`*`, empty or None).

    Raises ValueError for an expression that names no tag at all, such as `||`.
    """
    if not expression or expression == ALL_TAGS:
        return ()
    tags = dict.fromkeys(tag.strip(_JAVA_BLANKS) for tag in expression.split("||"))
    tags.pop("", None)
    if not tags:
        raise ValueError(f"no tag in {expression!r}, write * for all or names like 'A || B'")
    return tuple(tags)


def tag_code(tag: str | None) -> int:
    """What a consume queue keeps of a message's tag: Java's hash, 0 without a tag."""
    return java_hash(tag) if tag else 0


cached_tag_code = lru_cache(maxsize=8_192)(tag_code)
"""Topics have few tags, and Java's hash takes microseconds in Python."""
