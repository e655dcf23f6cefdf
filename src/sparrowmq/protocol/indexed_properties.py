"""What queue and index need of a message's properties, found without taking the others apart."""

from collections.abc import Sequence

from sparrowmq.protocol.tags import cached_tag_code


def indexed_properties(text: str) -> tuple[str, str, str]:
    """Tag, unique id and keys: the same as `parse_properties` finds, in a third of its time."""
    if "TAGS\x01" in text or "KEYS\x01" in text:
        text = f"\x02{text}\x02"
        start = text.rfind("\x02UNIQ_KEY\x01") + 10
        uniq_key = text[start : text.find("\x02", start)] if start >= 10 else ""
        return (
            _last_value(text, "\x02TAGS\x01") if "\x02TAGS\x01" in text else "",
            # A name without a value is none: the one before it counts.
            uniq_key or _last_value(text, "\x02UNIQ_KEY\x01"),
            _last_value(text, "\x02KEYS\x01") if "\x02KEYS\x01" in text else "",
        )
    at = text.find("UNIQ_KEY\x01")
    if at < 0:
        return "", "", ""
    end = text.find("\x02", at)
    # One that stands where a property stands, and has a value; a second one would count instead.
    if end > at + 9 and (not at or text[at - 1] == "\x02") and text.find("UNIQ_KEY", end) < 0:
        return "", text[at + 9 : end], ""
    return "", _last_value(f"\x02{text}\x02", "\x02UNIQ_KEY\x01"), ""


def _last_value(text: str, mark: str) -> str:
    at = text.rfind(mark)
    if at < 0:
        return ""
    start = at + len(mark)
    return text[start : text.find("\x02", start)] or _last_value(text[: at + 1], mark)


def indexed_columns(
    properties: Sequence[bytes],
) -> tuple[Sequence[int], Sequence[str], Sequence[str]]:
    """Tag codes, unique ids and keys of the messages of a batch."""
    together = b"\x02".join(properties)
    if b"TAGS\x01" in together or b"KEYS\x01" in together:
        columns = [indexed_properties(one.decode("utf-8", "replace")) for one in properties]
        return (
            [cached_tag_code(tag) if tag else 0 for tag, _, _ in columns],
            [uniq_key for _, uniq_key, _ in columns],
            [keys for _, _, keys in columns],
        )
    count = len(properties)
    return [0] * count, _unique_ids(properties, together), [""] * count


def _unique_ids(properties: Sequence[bytes], together: bytes) -> list[str]:
    texts = [one.decode("utf-8", "replace") for one in properties]
    # Java's clients write it first. As many as messages, and one in each: no message has two.
    if together.count(b"UNIQ_KEY\x01") == len(texts):
        mark = "UNIQ_KEY\x01"
        ids = [text.partition("\x02")[0][9:] for text in texts if text.startswith(mark)]
        if len(ids) == len(texts) and "" not in ids:
            return ids
    return [indexed_properties(text)[1] for text in texts]
