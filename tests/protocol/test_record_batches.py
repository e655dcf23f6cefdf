"""Records of a batch are packed together; they are the same as if each had been packed alone."""

from hypothesis import given
from hypothesis import strategies as some

from sparrowmq.protocol.record import encode_record, topic_part
from sparrowmq.protocol.record_batch import BatchedPuts, encode_records

HOSTS = some.sampled_from([b"\x7f\0\0\1\0\0\x2a\x9f", bytes(15) + b"\1\0\0\x2a\x9f"])
PROPERTIES = some.one_of(
    some.sampled_from([b"", b"a\x01b", b"a\x01b\x02", b"x" * 32_746, b"x" * 32_747, b"x" * 32_767]),
    some.binary(max_size=40),
)
MESSAGES = some.lists(
    some.tuples(
        some.integers(-(2**31), 2**31 - 1),
        some.binary(max_size=200),
        PROPERTIES,
    ),
    max_size=6,
)


@given(
    some.text("topic", min_size=1, max_size=130),
    MESSAGES,
    HOSTS,
    HOSTS,
    some.integers(0, 0x3F),
    some.booleans(),
)
def test_a_batch_is_packed_as_its_messages_are(
    topic: str,
    messages: list[tuple[int, bytes, bytes]],
    born_host: bytes,
    store_host: bytes,
    sys_flag: int,
    record_crc: bool,
) -> None:
    part = topic_part(topic)
    flags, bodies, properties = zip(*messages, strict=True) if messages else ((), (), ())
    puts = BatchedPuts(flags, bodies, properties, (), (), ())
    parts, sizes = encode_records(
        part, 3, 70, 1 << 40, sys_flag, 1_000, born_host, 2_000, store_host, 5, puts, record_crc
    )
    alone: list[bytes] = []
    for number, (flag, body, own) in enumerate(messages):
        log_offset = (1 << 40) + sum(map(len, alone))
        alone.append(
            encode_record(
                part,
                3,
                flag,
                70 + number,
                log_offset,
                sys_flag,
                1_000,
                born_host,
                2_000,
                store_host,
                5,
                0,
                body,
                own,
                record_crc,
            )
        )
    assert b"".join(parts) == b"".join(alone)
    assert sizes == list(map(len, alone))
