"""What operations raise.

AdminError           the operation cannot be done; the text says why and what to do
├── PartlyDone           it was done on some brokers and not on others, which it names
├── NameServersAway      no name server answers
└── NameServerRefusal    a name server answered with a code other than success
"""

from collections.abc import Sequence


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


class NameServersAway(AdminError):
    """None of the name servers at `addresses` answers; `failure` is what the last one gave."""

    def __init__(self, addresses: Sequence[str], failure: str) -> None:
        super().__init__(
            f"no name server answers ({', '.join(addresses)}): {failure};"
            " is it running? start one with: sparrowmq up"
        )
        self.addresses = tuple(addresses)
        self.failure = failure


class NameServerRefusal(AdminError):
    """A name server answered `code` with `remark`."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"the name server answered {code}: {remark}")
        self.code = code
        self.remark = remark
