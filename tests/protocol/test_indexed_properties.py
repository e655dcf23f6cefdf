"""Messages are searched for three properties; the search finds what parsing finds."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from sparrowmq.protocol.indexed_properties import indexed_columns, indexed_properties
from sparrowmq.protocol.properties import KEYS, TAGS, UNIQUE_KEY, parse_properties
from sparrowmq.protocol.tags import tag_code

_PIECES = some.sampled_from(
    ["\x01", "\x02", KEYS, TAGS, UNIQUE_KEY, "XTAGS", "TAGSX", "a", "é", "WAIT\x01true\x02"]
)


def parsed(properties: str) -> tuple[str, str, str]:
    found = parse_properties(properties)
    return found.get(TAGS, ""), found.get(UNIQUE_KEY, ""), found.get(KEYS, "")


@given(some.lists(_PIECES, max_size=24).map("".join))
def test_searching_finds_what_parsing_finds(text: str) -> None:
    assert indexed_properties(text) == parsed(text)


@given(some.text(max_size=64))
def test_any_text_is_read_as_parsing_reads_it(properties: str) -> None:
    assert indexed_properties(properties) == parsed(properties)


_COLUMN = some.lists(
    some.one_of(
        some.lists(_PIECES, max_size=12).map("".join),
        some.text("ab", min_size=0, max_size=3).map(lambda id: f"UNIQ_KEY\x01{id}\x02WAIT\x01true"),
    ),
    min_size=1,
    max_size=5,
)


@given(_COLUMN)
@example(["UNIQ_KEY\x01a\x02WAIT\x01true\x02", "UNIQ_KEY\x01b\x02WAIT\x01true\x02"])
@example(["UNIQ_KEY\x01a\x02KEYS\x01k\x02", "UNIQ_KEY\x01b\x02KEYS\x01k\x02"])
@example(["UNIQ_KEY\x01a\x02TAGS\x01t\x02", "UNIQ_KEY\x01b\x02TAGS\x01t\x02"])
@example(["UNIQ_KEY\x01a\x02UNIQ_KEY\x01c\x02", "UNIQ_KEY\x01b\x02UNIQ_KEY\x01c\x02"])
@example(["UNIQ_KEY\x01\x02", "UNIQ_KEY\x01\x02"])
@example(["UNIQ_KEY\x01a\x02b\x01c\x02", "UNIQ_KEY\x01ab\x02b\x01\x02"])
@example(["UNIQ_KEY\x01a\x02", "UNIQ_KEZ\x01a\x02"])
@example(["UNIQ_KEY\x01ab\x02", "UNIQ_KEY\x01\x02b\x02"])
@example(["UNIQ_KEY\x01ab\x02", "UNIQ_KEY\x01é\x02"])
@example(["UNIQ_KEY\x01aUNIQ_KEY\x01\x02", "x" * 19 + "\x02"])
def test_the_columns_of_a_batch_hold_what_parsing_each_message_finds(texts: list[str]) -> None:
    expected = [parsed(text) for text in texts]
    codes, uniq_keys, keys = indexed_columns([text.encode() for text in texts])
    assert list(codes) == [tag_code(tag) if tag else 0 for tag, _, _ in expected]
    assert list(uniq_keys) == [uniq_key for _, uniq_key, _ in expected]
    assert list(keys) == [one for _, _, one in expected]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ("", "", "")),
        ("UNIQ_KEY\x01u\x02WAIT\x01true\x02", ("", "u", "")),
        ("KEYS\x01a b\x02UNIQ_KEY\x01u\x02TAGS\x01created", ("created", "u", "a b")),
        ("TAGS\x01old\x02TAGS\x01new\x02", ("new", "", "")),
        ("TAGS\x01old\x02TAGS\x01\x02", ("old", "", "")),
        ("MYTAGS\x01no\x02", ("", "", "")),
    ],
)
def test_tag_unique_id_and_keys_of_a_message(text: str, found: tuple[str, str, str]) -> None:
    assert indexed_properties(text) == found
