"""Errors of the Spark package.

    RocketMQError
    ├── OptionError      an option is unknown, wrong or contradicts another: the user changes it
    ├── TopicMissing     no name server knows the topic
    ├── Unreachable      a server cannot be reached or does not answer: worth another try
    ├── BrokerAway       a broker that is needed is not there, or was not for too long
    ├── ServerRefused    a server answered, and the answer is no; `code` is RocketMQ's
    │   └── NotTaken     a broker takes no messages now: it drains, or may not be written to
    ├── DataLoss         messages that were wanted are not there any more
    ├── NoJava           there is no Java that Spark could run on (in sparrowmq.spark.session)
    └── Damaged          bytes that are no valid message record

Spark shows the text of an error and little else, so each text names the thing and the remedy.
"""

from collections.abc import Sequence

_SHOWN = 5


def few_of(names: Sequence[str]) -> str:
    """Names for a text: the first of them, and how many more there are."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


class RocketMQError(Exception):
    """Something between Spark and RocketMQ went wrong."""


class OptionError(RocketMQError, ValueError):
    """The option `option` cannot be used as given."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"option {option}: {problem}")
        self.option = option


class TopicMissing(RocketMQError):
    """The name servers do not know `topic`."""

    def __init__(self, topic: str, name_servers: str) -> None:
        super().__init__(
            f"topic {topic} does not exist at name server {name_servers};"
            f" create it (sparrowmq topic create {topic}) or correct the option subscribe"
        )
        self.topic = topic
        self.name_servers = name_servers


class ClusterUnreachable(RocketMQError):
    """No answer from `address`; `origin` says where it was configured, if that is known."""

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
    """A broker that serves wanted queues is not there."""


class ServerRefused(RocketMQError):
    """`address` answered with another code than success.

    `retry_after_s` is when the server says that it is worth another try, None where it does not.
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
    """A broker takes no messages now: worth another try, at another broker or later."""


class DataLoss(RocketMQError):
    """Messages of a queue were deleted before they were read."""


class Damaged(RocketMQError):
    """Bytes that are no valid record. `position` is where it starts, `reason` says why."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"no valid record at {position}: {reason}")
        self.position = position
        self.reason = reason
