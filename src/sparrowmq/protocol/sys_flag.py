"""System flags: bits of a message's sysFlag and of a pull's.

message  bit 0 compressed      bits 2-3 transaction     bit 5 store host is IPv6   bits 8-10
         bit 1 several tags    bit 4 born host is IPv6  bits 6-7 inner batch       compression
"""

COMPRESSED = 0x1
MULTI_TAGS = 0x2

TRANSACTION_NONE = 0x0
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
TRANSACTION_MASK = 0xC

BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20

NEED_UNWRAP = 0x40
INNER_BATCH = 0x80
"""Several messages in one record, which clients split (batch consume queues of 5.x)."""

COMPRESSION_SHIFT = 8
COMPRESSION_MASK = 0x700

PULL_COMMIT_OFFSET = 0x1
"""The pull's commitOffset counts."""
PULL_SUSPEND = 0x2
"""Wait at the broker if there are no messages."""
PULL_SUBSCRIPTION = 0x4
"""The filter is in the request; otherwise the heartbeat's counts."""
PULL_CLASS_FILTER = 0x8
PULL_LITE = 0x10


def with_transaction_type(sys_flag: int, kind: int) -> int:
    """The flag with its transaction bits replaced."""
    return sys_flag & ~TRANSACTION_MASK | kind


def pull_sys_flag(
    *, commit_offset: bool, suspend: bool, subscription: bool, lite_pull: bool = False
) -> int:
    """The flag a consumer sends with a pull."""
    return (
        commit_offset * PULL_COMMIT_OFFSET
        | suspend * PULL_SUSPEND
        | subscription * PULL_SUBSCRIPTION
        | lite_pull * PULL_LITE
    )
