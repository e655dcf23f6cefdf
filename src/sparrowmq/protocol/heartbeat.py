"""Heartbeats: which producers and consumers a client process contains."""

from enum import StrEnum
from typing import Self

import msgspec

from sparrowmq.protocol.body import Body
from sparrowmq.protocol.java import java_hash
from sparrowmq.protocol.lenient_json import write_json
from sparrowmq.protocol.subscription import SubscriptionData


class ConsumeType(StrEnum):
    """Which side starts a delivery."""

    ACTIVELY = "CONSUME_ACTIVELY"
    """The application pulls."""
    PASSIVELY = "CONSUME_PASSIVELY"
    """The client pulls and pushes to a handler."""
    POP = "CONSUME_POP"

    @classmethod
    def _missing_(cls, value: object) -> Self:
        return cls(cls.PASSIVELY)


class MessageModel(StrEnum):
    """Which members of a group get a message."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"

    @classmethod
    def _missing_(cls, value: object) -> Self:
        # The Go client's own spelling is BroadCasting; it converts to upper case before sending
        return cls(cls.BROADCASTING if str(value).upper() == cls.BROADCASTING else cls.CLUSTERING)


class ConsumeFromWhere(StrEnum):
    """Where a group without stored offsets starts."""

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"

    @classmethod
    def _missing_(cls, value: object) -> Self:
        # The three deprecated names mean LAST in Apache's clients
        return cls(cls.LAST_OFFSET)


class ProducerData(Body, frozen=True, kw_only=True):
    """A producer group in the client."""

    group_name: str


class ConsumerData(Body, frozen=True, kw_only=True):
    """A consumer group in the client, with its subscriptions."""

    group_name: str
    consume_type: ConsumeType = ConsumeType.PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.LAST_OFFSET
    subscription_data_set: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False


class HeartbeatData(Body, frozen=True, kw_only=True):
    """Body of request 34 (and 35's relative in version 2)."""

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: tuple[ProducerData, ...] = ()
    consumer_data_set: tuple[ConsumerData, ...] = ()
    heartbeat_fingerprint: int = 0
    """Version 2: hash of the rest; 0 in version 1."""
    without_sub: bool = False
    """Version 2: subscriptions are omitted, as the broker knows them by their fingerprint."""

    def fingerprint(self) -> int:
        """The version 2 fingerprint: the same as long as groups and subscriptions are.

        Brokers only compare it with the last one of the same client. Java's differs from ours, as
        it depends on the order of a HashSet.
        """
        consumers = tuple(map(_without_versions, self.consumer_data_set))
        bare = HeartbeatData(
            client_id="", producer_data_set=self.producer_data_set, consumer_data_set=consumers
        )
        return java_hash(write_json(bare).decode())


def _without_versions(consumer: ConsumerData) -> ConsumerData:
    subscriptions = tuple(
        msgspec.structs.replace(subscription, sub_version=0)
        for subscription in consumer.subscription_data_set
    )
    return msgspec.structs.replace(consumer, subscription_data_set=subscriptions)
