"""Java's String.hashCode: known values, UTF-16, and the fast variants against the definition."""

from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.protocol.java import MASK_32, java_hash, positive_index_hash, unsigned_java_hash


def by_definition(text: str) -> int:
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (value * 31 + int.from_bytes(units[position : position + 2], "big")) & MASK_32
    return value


def test_known_java_values() -> None:
    assert java_hash("") == 0
    assert java_hash("a") == 97
    assert java_hash("TagA") == 2598919
    assert java_hash("hello world") == 1794106052
    assert java_hash("polygenelubricants") == -(2**31)


def test_characters_beyond_the_basic_plane_count_as_two_units() -> None:
    assert java_hash("😀") == 0xD83D * 31 + 0xDE00
    assert java_hash("\ud83d") == 0xD83D


def test_the_most_negative_hash_becomes_zero_in_an_index() -> None:
    assert positive_index_hash(unsigned_java_hash("polygenelubricants")) == 0
    assert positive_index_hash(unsigned_java_hash("a")) == 97
    assert positive_index_hash(MASK_32) == 1


@given(st.text())
def test_any_text_hashes_as_defined(text: str) -> None:
    assert unsigned_java_hash(text) == by_definition(text)


@given(st.text(min_size=257, max_size=600, alphabet="ab#é"))
def test_long_texts_hash_as_defined(text: str) -> None:
    assert unsigned_java_hash(text) == by_definition(text)
