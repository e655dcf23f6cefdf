"""Permissions of a topic's queues, as Apache's PermName numbers them."""

PERM_PRIORITY = 8
PERM_READ = 4
PERM_WRITE = 2
PERM_INHERIT = 1
PERM_READ_WRITE = PERM_READ | PERM_WRITE


def is_readable(perm: int) -> bool:
    """Whether consumers may pull."""
    return perm & PERM_READ != 0


def is_writable(perm: int) -> bool:
    """Whether producers may send."""
    return perm & PERM_WRITE != 0


def is_inherited(perm: int) -> bool:
    """Whether new topics may take their settings from this one (TBW102)."""
    return perm & PERM_INHERIT != 0


def is_valid_perm(perm: int) -> bool:
    """Whether an operator may set this permission."""
    return 0 <= perm < PERM_PRIORITY


def perm_text(perm: int) -> str:
    """`RWX` with dashes, as mqadmin prints it."""
    return "".join(
        letter if perm & bit else "-"
        for letter, bit in (("R", PERM_READ), ("W", PERM_WRITE), ("X", PERM_INHERIT))
    )
