"""Index entries of many messages at once equal those of each message alone."""

from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.protocol.java import positive_index_hash, unsigned_java_hash
from sparrowmq.store.index.entries import IndexRequest, entries_of, stored_hashes

TEXTS = st.text(max_size=200) | st.text("0123456789ABCDEF", min_size=32, max_size=32)


def one_by_one(topics: list[str], keys: list[str]) -> list[int]:
    return [
        positive_index_hash(unsigned_java_hash(f"{topic}#{key}"))
        for topic, key in zip(topics, keys, strict=True)
    ]


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=20))
def test_keys_hash_like_topic_and_key_joined(pairs: list[tuple[str, str]]) -> None:
    topics, keys = [topic for topic, _ in pairs], [key for _, key in pairs]
    assert stored_hashes(topics, keys).tolist() == one_by_one(topics, keys)


def test_the_largest_characters_do_not_flow_over() -> None:
    keys = ["\x7f" * length for length in range(129)] * 20
    topics = ["t"] * len(keys)
    assert stored_hashes(topics, keys).tolist() == one_by_one(topics, keys)


def test_one_key_that_is_long_or_no_ascii_changes_no_other() -> None:
    keys = [*map(str, range(600)), "x" * 129, "größe", "", *(f"{at:032X}" for at in range(600))]
    topics = [f"orders-{at % 3}" for at in range(len(keys))]
    assert stored_hashes(topics, keys).tolist() == one_by_one(topics, keys)


def test_the_smallest_number_of_java_is_stored_as_zero() -> None:
    # Seven characters from "@" on are seven digits to the base 31.
    digits = 0x80000000 - unsigned_java_hash("a#@@@@@@@") & 0xFFFFFFFF
    key = "".join(chr(ord("@") + digits // 31**place % 31) for place in range(6, -1, -1))
    assert unsigned_java_hash(f"a#{key}") == 0x80000000
    assert stored_hashes(["a"], [key]).tolist() == [0]


def test_a_message_has_an_entry_for_its_unique_id_and_for_each_key_in_their_order() -> None:
    messages: list[IndexRequest] = [
        ("orders", "ID0", "", 0, 10),
        ("orders", "", "a  b", 100, 11),
        ("paid", "ID2", "c", 200, 12),
        ("paid", "", "", 300, 13),
    ]
    entries = entries_of(messages)
    topics = ["orders", "orders", "orders", "paid", "paid"]
    assert entries.key_hashes.tolist() == one_by_one(topics, ["ID0", "a", "b", "ID2", "c"])
    assert entries.log_offsets.tolist() == [0, 100, 100, 200, 200]
    assert entries.timestamps.tolist() == [10, 11, 11, 12, 12]


def test_messages_without_id_and_keys_have_no_entry() -> None:
    assert entries_of([("orders", "", "", 0, 10), ("orders", "", " ", 9, 10)]).count == 0
