"""What operations raise.

AdminError           the operation cannot be done; the text says why and what to do
└── PartlyDone       it was done on some brokers and not on others, which it names
"""


class AdminError(Exception):
    """An operation failed as a whole; nothing was changed."""


class PartlyDone(AdminError):
    """`done` brokers have the change, `failed` ones do not (name → reason)."""

    def __init__(self, what: str, done: list[str], failed: dict[str, str]) -> None:
        reasons = "; ".join(f"{broker}: {reason}" for broker, reason in failed.items())
        super().__init__(
            f"{what} on {', '.join(done)}, but not on {', '.join(failed)} ({reasons});"
            " when that is mended run it again, it changes nothing twice"
        )
        self.done = done
        self.failed = failed
