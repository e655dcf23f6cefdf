"""Tag expressions such as `created || paid`, and the hash of a tag that consume queues keep.

Standard library only: Spark's executors read expressions without msgspec.
"""

from functools import lru_cache

from sparrowmq.protocol.java import java_hash

ALL_TAGS = "*"

# String.trim removes every character up to the space, and nothing else
_JAVA_BLANKS = "".join(map(chr, range(33)))


def parse_tags(expression: str | None) -> tuple[str, ...]:
    """The tags of an expression in order, () for all (`*`, empty or None).

    Raises ValueError for an expression that names no tag at all, such as `||`.
    """
    if not expression or expression == ALL_TAGS:
        return ()
    tags = dict.fromkeys(tag.strip(_JAVA_BLANKS) for tag in expression.split("||"))
    tags.pop("", None)
    if not tags:
        raise ValueError(f"no tag in {expression!r}, write * for all or names like 'A || B'")
    return tuple(tags)


def tags_fault(expression: str, *, for_comma: str) -> str | None:
    """What is wrong with a filter that cannot be intended, None if it is fine.

    Brokers treat an empty text as everything, and skip a missing name: if a variable was empty, the
    reader would get what it did not ask for, or miss what it did. They treat `created, paid` as the
    name of one tag, which would match nothing, and so `created|paid` and `created && paid`.
    `for_comma` is how the caller's users select a tag that really contains a comma (decision 30).
    """
    tags = [tag.strip() for tag in expression.split("||")]
    if not all(tags):
        missing = "is empty" if len(tags) == 1 else f"has no name at place {tags.index('') + 1}"
        return f"which {missing}; must be names such as 'created || paid', or * for all"
    if len(tags) > 1 and ALL_TAGS in tags:
        return "and * stands alone: it means all tags"
    wrong = next((each for each in ("&&", "|") if any(each in tag for tag in tags)), None)
    if wrong is not None:
        meant = _separated(expression, wrong)
        way_out = for_comma.replace("a,b", f"a{wrong}b")
        return (
            f"and tags are separated by ||, not by {wrong}: write {meant!r}, or {way_out} for a tag"
            f" that has {wrong} in it"
        )
    if "," in expression:
        meant = _separated(expression, ",")
        return (
            f"and tags are separated by ||, not by commas: write {meant!r}, or {for_comma} for a"
            " tag that has a comma in it"
        )
    return None


def _separated(expression: str, wrong: str) -> str:
    """The tags with the separator that was meant instead of a wrong one."""
    parts = expression.replace("||", wrong).split(wrong)
    return " || ".join(filter(None, map(str.strip, parts))) or "created || paid"


def tag_code(tag: str | None) -> int:
    """The hash of a message's tag in a consume queue: Java's, 0 without a tag."""
    return java_hash(tag) if tag else 0


cached_tag_code = lru_cache(maxsize=8_192)(tag_code)
"""Cached, because topics have few tags and Java's hash takes microseconds in Python."""
