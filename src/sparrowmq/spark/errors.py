"""Errors of the Spark package.

    RocketMQError
    ├── OptionError      an option is unknown, wrong or contradicts another: the user changes it
    ├── TopicMissing     no name server knows the topic
    ├── ClusterUnreachable
    │                    a server cannot be reached or does not answer: worth another try
    ├── BrokerAway       a required broker is away, or was for too long
    ├── ServerRefused    a server answered, and the answer is no; `code` is RocketMQ's
    │   └── NotTaken     a broker takes no messages now: it drains, or is not writable
    ├── DataLoss         requested messages no longer exist
    ├── NoJava           no Java that Spark could run on (in sparrowmq.spark.session)
    └── Damaged          bytes that are not a valid message record

Spark shows little more than the text of an error, so each text names the thing and the remedy.
"""

from collections.abc import Sequence

_SHOWN = 5


def few_of(names: Sequence[str]) -> str:
    """The first few names, and how many more there are, for a text."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


class RocketMQError(Exception):
    """Base class of the Spark package's errors."""


class OptionError(RocketMQError, ValueError):
    """The option `option` cannot be used as given."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"option {option}: {problem}")
        self.option = option
        self.problem = problem


class TopicMissing(RocketMQError):
    """The name servers do not know `topic`, or, if `lost` says so, none of its brokers is there."""

    def __init__(self, topic: str, name_servers: str, lost: str = "") -> None:
        super().__init__(
            f"topic {topic} at name server {name_servers}: {lost}"
            if lost
            else f"topic {topic} does not exist at name server {name_servers};"
            f" create it (sparrowmq topic create {topic}) or correct the option subscribe"
        )
        self.lost = lost
        self.topic = topic
        self.name_servers = name_servers


class ClusterUnreachable(RocketMQError):
    """No answer from `address`; `origin` is where it was configured, if known."""

    def __init__(self, address: str, request: str, reason: str, origin: str = "") -> None:
        where = f"{address} ({origin})" if origin else address
        super().__init__(
            f"{request} at {where}: {reason}; check that the server runs there and that this"
            " machine reaches it (an executor uses the address that the broker advertises)"
        )
        self.address = address
        self.request = request
        self.reason = reason


class BrokerAway(RocketMQError):
    """A broker that serves required queues is away."""


class ServerRefused(RocketMQError):
    """`address` answered with a code other than success.

    `retry_after_s` is how long the server asks us to wait before a retry, None if it does not say.
    """

    def __init__(
        self,
        address: str,
        request: str,
        code: int,
        remark: str,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(f"{request} at {address} was refused with code {code}: {remark}")
        self.address = address
        self.request = request
        self.code = code
        self.remark = remark
        self.retry_after_s = retry_after_s


class NotTaken(ServerRefused):
    """A broker takes no messages now: retry at another broker, or later."""


class DataLoss(RocketMQError):
    """Messages of a queue were deleted before they were read."""


class Damaged(RocketMQError):
    """Bytes that are not a valid record. `position` is where they start, `reason` says why."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"no valid record at {position}: {reason}")
        self.position = position
        self.reason = reason
