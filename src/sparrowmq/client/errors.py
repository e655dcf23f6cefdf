"""What a client raises.

ClientError
├── NoRoute          no broker serves the topic, or its route cannot be fetched
│   ├── NoNameServer     … because no name server answers
│   └── MasterAway       … because the master of every broker that has it is away
├── BrokerRefused    a server answered with a code other than success
│   ├── NameServerRefused    … and it was asked as a name server
│   └── LimitReached         … because a quota or a largest backlog is reached
├── StrategyFailed   queues cannot be allocated: the strategy raised, or returned unknown queues
├── SendFailed       all attempts of a send failed; carries attempts, time and brokers tried
├── NotDeduplicated  an idempotent producer sends to a topic that is not de-duplicated
├── QueueLost        a queue went to another member: do not commit what was read from it
└── NotStarted       the producer or consumer is not running

Wrong arguments are ValueErrors, raised before anything is sent.
"""

from collections.abc import Iterator, Sequence

from sparrowmq.client.send_result import SendResult
from sparrowmq.episodes import without_numbers
from sparrowmq.errors import SparrowMQError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.message import MessageQueue


class ClientError(SparrowMQError):
    """Base of the errors that producers and consumers raise."""

    stored: Sequence[SendResult] = ()
    """What `send_batch` had stored when a later one of its sends failed, in message order: send
    again only the messages after these."""


class NoRoute(ClientError):
    """There is no route for `topic`; `reason` says why and what to do."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"no route for topic {topic}: {reason}")
        self.topic = topic
        self.reason = reason


class NoNameServer(NoRoute):
    """None of the name servers at `addresses` answers; `failure` is the last one's failure, and
    `origin` says where the addresses come from."""

    def __init__(self, topic: str, addresses: Sequence[str], origin: str, failure: str) -> None:
        super().__init__(
            topic,
            f"no name server answers ({', '.join(addresses)}, from {origin}): {failure};"
            " is it running, and is that its address? start one with: sparrowmq up",
        )
        self.origin = origin
        self.addresses = tuple(addresses)
        self.failure = failure


class MasterAway(NoRoute):
    """The topic exists, but no broker that could take its messages has a master now. A master may
    come back, or a slave take its place: sends that retry wait for that until their time is up."""


class BrokerRefused(ClientError):
    """`address` answered `code` with `text`."""

    def __init__(self, address: str, code: int, text: str) -> None:
        self.is_known = code in ResponseCode.__members__.values()
        """Whether RocketMQ gives `code` a name."""
        name = ResponseCode(code).name if self.is_known else "unknown code"
        super().__init__(f"{address} answered {code} ({name}): {text or 'no reason given'}")
        self.address = address
        self.code = code
        self.text = text


RETRIED = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.GO_AWAY,
    }
)
"""Codes that another broker might not answer; all others are raised at once."""


class NameServerRefused(BrokerRefused):
    """The name server at `address` answered a request for a route with `code`."""


class LimitReached(BrokerRefused):
    """A quota or a largest backlog of the broker at `address` would have kept the message waiting
    for longer than the send had time. It is not stored; retry in `retry_after_s`."""

    def __init__(self, address: str, code: int, text: str, retry_after_s: float) -> None:
        super().__init__(address, code, text)
        self.retry_after_s = retry_after_s


class StrategyFailed(ClientError):
    """The allocation `strategy` failed; the queues stay with their present owners."""

    def __init__(self, strategy: str, reason: str) -> None:
        super().__init__(f"strategy {strategy} failed: {reason}")
        self.strategy = strategy
        self.reason = reason


def counted(number: int, noun: str) -> str:
    """`1 attempt`, `2 attempts`, `1,000 attempts`."""
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"


def _causes(attempts: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Each cause once. Causes that differ only in numbers, such as the time that an attempt had,
    count as one."""
    alike: dict[tuple[str, str], list[str]] = {}
    for broker, reason in attempts:
        alike.setdefault((broker, without_numbers(reason)), []).append(reason)
    for (broker, _), reasons in alike.items():
        times = f"{len(reasons)} times" + (", with other numbers" if len({*reasons}) > 1 else "")
        yield f"{broker}: {reasons[0]}" + (f" ({times})" if len(reasons) > 1 else "")


class SendFailed(ClientError):
    """No attempt succeeded. `attempts` lists (broker name, reason) in order."""

    def __init__(
        self,
        topic: str,
        attempts: list[tuple[str, str]],
        elapsed_s: float,
        *,
        may_be_stored: bool = False,
    ) -> None:
        tried = "; ".join(_causes(attempts))
        tries = counted(len(attempts), "attempt")
        super().__init__(
            f"sending to topic {topic} failed after {tries} in {elapsed_s:.3f} s ({tried})"
            + ("; whether the message is stored is unknown" if may_be_stored else "")
        )
        self.may_be_stored = may_be_stored
        """Whether an attempt may have left a copy, because its outcome is unknown."""
        self.topic = topic
        self.attempts = attempts
        self.elapsed_s = elapsed_s

    @property
    def brokers(self) -> list[str]:
        """Names of the brokers that were tried, each once."""
        return list(dict.fromkeys(broker for broker, _ in self.attempts))


class NotDeduplicated(ClientError):
    """If an idempotent producer repeated a message of `topic`, `broker_name` would store it twice.
    Nothing was sent."""

    def __init__(self, topic: str, broker_name: str, reason: str) -> None:
        super().__init__(
            f"topic {topic} is not de-duplicated at {broker_name}, which an idempotent producer"
            f" needs: {reason}"
        )
        self.topic = topic
        self.broker_name = broker_name
        self.reason = reason


class QueueLost(ClientError):
    """`queue` was given to another member while this one could not be reached."""

    def __init__(self, queue: MessageQueue) -> None:
        super().__init__(
            f"{queue} went to another member of the group, which reads it again from its stored"
            " progress: forget what was read of it since the last commit"
        )
        self.queue = queue


class NotStarted(ClientError):
    """A producer, consumer or client was used before its start or after its stop."""
