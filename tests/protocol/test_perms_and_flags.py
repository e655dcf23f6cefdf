"""Permissions and system flags are bits that Apache numbers."""

import pytest

from sparrowmq.protocol import sys_flag
from sparrowmq.protocol.perm import (
    PERM_READ_WRITE,
    is_inherited,
    is_readable,
    is_valid_perm,
    is_writable,
    perm_text,
)
from sparrowmq.protocol.sys_flag import (
    TRANSACTION_COMMIT,
    TRANSACTION_NONE,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    pull_sys_flag,
    with_transaction_type,
)


@pytest.mark.parametrize(
    ("perm", "text"),
    [(0, "---"), (1, "--X"), (2, "-W-"), (4, "R--"), (6, "RW-"), (7, "RWX")],
)
def test_permissions_read_as_mqadmin_prints_them(perm: int, text: str) -> None:
    assert perm_text(perm) == text
    assert is_readable(perm) == ("R" in text)
    assert is_writable(perm) == ("W" in text)
    assert is_inherited(perm) == ("X" in text)


def test_an_operator_may_set_zero_to_seven() -> None:
    assert PERM_READ_WRITE == 6
    assert [perm for perm in range(-2, 12) if is_valid_perm(perm)] == list(range(8))


def test_transaction_bits_are_replaced_and_the_others_kept() -> None:
    types = (TRANSACTION_NONE, TRANSACTION_PREPARED, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK)
    assert types == (0, 4, 8, 12)
    for kind in types:
        flag = with_transaction_type(0x701 | TRANSACTION_PREPARED, kind)
        assert flag == 0x701 | kind


def test_the_flags_of_a_pull_tell_what_it_carries() -> None:
    nothing = {"commit_offset": False, "suspend": False, "subscription": False}
    assert pull_sys_flag(**nothing) == 0
    assert pull_sys_flag(**nothing | {"commit_offset": True}) == 1
    assert pull_sys_flag(**nothing | {"suspend": True}) == 2
    assert pull_sys_flag(**nothing | {"subscription": True}) == 4
    assert pull_sys_flag(**nothing, lite_pull=True) == 16


def test_the_bits_are_apaches() -> None:
    bits = {name: value for name, value in vars(sys_flag).items() if name.isupper()}
    assert bits == {
        "COMPRESSED": 1,
        "MULTI_TAGS": 2,
        "TRANSACTION_NONE": 0,
        "TRANSACTION_PREPARED": 4,
        "TRANSACTION_COMMIT": 8,
        "TRANSACTION_ROLLBACK": 12,
        "TRANSACTION_MASK": 12,
        "BORN_HOST_V6": 16,
        "STORE_HOST_V6": 32,
        "NEED_UNWRAP": 64,
        "INNER_BATCH": 128,
        "COMPRESSION_SHIFT": 8,
        "COMPRESSION_MASK": 0x700,
        "PULL_COMMIT_OFFSET": 1,
        "PULL_SUSPEND": 2,
        "PULL_SUBSCRIPTION": 4,
        "PULL_CLASS_FILTER": 8,
        "PULL_LITE": 16,
    }
