"""How a consumer takes part in its group: what users choose, and what its kind decides."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypedDict

from sparrowmq.client.argument_checks import (
    MAX_LONG,
    check_function,
    check_path,
    check_whole,
    member_of,
    to_ms,
)
from sparrowmq.client.client import Client
from sparrowmq.client.config import ClientConfig
from sparrowmq.client.strategies import AVG, NAMED, Strategy, strategy_named
from sparrowmq.protocol.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import check_consumer_group

QueueListener = Callable[[str, Sequence[MessageQueue], Sequence[MessageQueue]], None]
"""(topic, all its queues, those that are ours now), called when the assignment changed."""

PERSIST_S = 5.0

ModelName = Literal["BROADCASTING", "CLUSTERING"]
FromWhereName = Literal["LAST_OFFSET", "FIRST_OFFSET", "TIMESTAMP"]
StrategyName = Literal["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "STICKY"]


class OwnClientSettings(TypedDict, total=False):
    """The settings that every consumer takes, including consumers that cannot share a client."""

    name_servers: str | Sequence[str]
    """`host:port` of each; unless given, `sparrowmq.cluster_address` finds them."""
    config: ClientConfig | None
    """Name servers and more; use it instead of `name_servers`."""
    model: MessageModel | ModelName
    """CLUSTERING shares messages among the members, BROADCASTING gives each member all of them."""
    offsets_dir: str | Path | None
    """Where broadcasting members keep their progress; ~/.sparrowmq/offsets unless given."""
    strategy: Strategy | StrategyName
    """Which member gets which queues; `AVG` unless given."""
    listener: QueueListener | None
    """Called after the assignment has changed."""
    max_per_second: float | None
    """The most messages to take per second; `limit_rate` changes it while the consumer runs."""
    share_rate: bool
    """Whether `max_per_second` is shared by all members of the group; otherwise each member may
    take this many."""


class OwnClientStartSettings(OwnClientSettings, total=False):
    """OwnClientSettings for consumers that store progress, plus where a queue without any
    progress begins."""

    from_where: ConsumeFromWhere | FromWhereName
    """LAST_OFFSET unless given; TIMESTAMP if one of the next two is given."""
    from_timestamp_ms: int | None
    """For TIMESTAMP; half an hour before the start unless given."""
    from_time: datetime | None
    """The same as a datetime with a time zone."""


class ConsumerSettings(OwnClientSettings, total=False):
    """The settings that every consumer takes."""

    client: Client | None
    """A started client shared by producers and consumers; without it the consumer creates one."""


class StartSettings(OwnClientStartSettings, total=False):
    """ConsumerSettings for consumers that store progress."""

    client: Client | None
    """See ConsumerSettings."""


def with_start(chosen: dict[str, Any]) -> dict[str, Any]:
    """The user's settings, with a single form of the time at which new queues begin. A time without
    `from_where` implies TIMESTAMP, its only possible meaning. Raises ValueError if the time would
    be ignored."""
    at: datetime | None = chosen.get("from_time")
    start = {name: value for name, value in chosen.items() if name != "from_time"}
    if at is not None:
        if start.get("from_timestamp_ms") is not None:
            raise ValueError("from_time and from_timestamp_ms cannot be combined, give one")
        if not isinstance(at, datetime):
            raise ValueError(f"from_time is {at!r}, must be a datetime; from_timestamp_ms takes ms")
        start["from_timestamp_ms"] = to_ms("from_time", at)
    if start.get("from_timestamp_ms") is None:
        return start
    at_a_time = ConsumeFromWhere.TIMESTAMP
    where = member_of("from_where", start.get("from_where", at_a_time), ConsumeFromWhere)
    if where is not at_a_time:
        given = "from_timestamp_ms" if at is None else "from_time"
        raise ValueError(
            f"{given} is given, but from_where is {where.name}, which would ignore it: leave"
            " from_where out, or give TIMESTAMP"
        )
    return {**start, "from_where": where}


def _strategy(given: object) -> Strategy:
    """A strategy, which may be given as its name. Raises ValueError that lists the names."""
    if isinstance(given, Strategy):
        return given
    if isinstance(given, str):
        return strategy_named(given)
    names = ", ".join(NAMED)
    raise ValueError(f"strategy is {given!r}, must be {names} or another Strategy")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """How a consumer takes part in its group."""

    group: str
    consume_type: ConsumeType = ConsumeType.PASSIVELY
    model: MessageModel = MessageModel.CLUSTERING  # a name is converted, as in `from_where`
    offsets_dir: Path | None = None  # a string is converted
    """Where broadcasting members keep their progress; ~/.sparrowmq/offsets unless given."""
    from_where: ConsumeFromWhere = ConsumeFromWhere.LAST_OFFSET
    from_timestamp_ms: int | None = None
    strategy: Strategy = AVG  # a name is converted
    is_orderly: bool = False
    takes_retries: bool = True
    """Whether %RETRY%group is subscribed in clustering groups."""
    has_leases: bool = True
    """Whether queues of clustering groups are locked at their brokers while they are held."""
    drops_silent: bool = True
    starts_at_0: bool = False
    """The low-level pull consumer's rule: a queue without a stored offset starts at 0."""
    persist_s: float = PERSIST_S
    listener: QueueListener | None = None

    def __post_init__(self) -> None:
        check_consumer_group(self.group)
        model = member_of("model", self.model, MessageModel)
        from_where = member_of("from_where", self.from_where, ConsumeFromWhere)
        object.__setattr__(self, "model", model)
        object.__setattr__(self, "from_where", from_where)
        object.__setattr__(self, "strategy", _strategy(self.strategy))
        if self.listener is not None:
            check_function("listener", self.listener)
        if self.from_timestamp_ms is not None:
            check_whole("from_timestamp_ms", self.from_timestamp_ms, 0, MAX_LONG)
        if self.offsets_dir is not None:
            check_path("offsets_dir", self.offsets_dir)
            object.__setattr__(self, "offsets_dir", Path(self.offsets_dir))
        if self.is_orderly and self.is_broadcasting:
            raise ValueError(
                f"group {self.group}: an orderly handler needs the CLUSTERING model, because"
                " BROADCASTING members lock no queues; use another model or a concurrent handler"
            )

    @property
    def begins_at_the_end(self) -> bool:
        """Whether a group whose progress is on brokers begins new queues with the next message."""
        return self.from_where is ConsumeFromWhere.LAST_OFFSET and not self.is_broadcasting

    @property
    def is_broadcasting(self) -> bool:
        """Whether each member gets everything."""
        return self.model is MessageModel.BROADCASTING
