"""Recall handles: the answer to a timed send, and invalid ones."""

from base64 import urlsafe_b64encode

import pytest

from sparrowmq.protocol.headers.messages import RecallHandle

HANDLE = RecallHandle("orders", "broker-a", 1_700_000_000_000, "0A000001")


def encoded(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode()


def test_a_handle_is_read_as_it_was_written() -> None:
    assert str(HANDLE) == encoded("v1 orders broker-a 1700000000000 0A000001")
    assert RecallHandle.parse(str(HANDLE)) == HANDLE


@pytest.mark.parametrize("topic", ["a?b", "a>b>c", "ÿþ"])
def test_a_handle_is_safe_in_an_address(topic: str) -> None:
    """Bytes that plain base64 would write with a slash or a plus."""
    handle = HANDLE._replace(topic=topic)
    assert not set(str(handle)) & set("/+")
    assert RecallHandle.parse(str(handle)) == handle


def test_what_a_later_version_adds_is_passed_over() -> None:
    assert RecallHandle.parse(encoded("v1 orders broker-a 1700000000000 0A000001 more")) == HANDLE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no base64!",
        "ümlaut",
        encoded("v2 orders broker-a 1700000000000 0A000001"),
        encoded("v1 orders broker-a 1700000000000"),
        encoded("v1 orders broker-a soon 0A000001"),
        encoded("v1 orders broker-a -1 0A000001"),
        encoded("v1 orders broker-a ٣ 0A000001"),
        encoded(f"v1 orders broker-a {'9' * 19} 0A000001"),
    ],
)
def test_an_invalid_handle_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a recall handle"):
        RecallHandle.parse(text)
