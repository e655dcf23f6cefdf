"""What a pull gets: everything, some tags, or what an SQL92 condition accepts, up to a size."""

from collections.abc import Callable, Container
from functools import lru_cache

from sparrowmq.broker.broker import Broker
from sparrowmq.net.errors import RequestRefused
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.group_config import SubscriptionGroupConfig
from sparrowmq.protocol.headers.pull import PullMessage
from sparrowmq.protocol.properties import decode_properties
from sparrowmq.protocol.record import decode_record
from sparrowmq.protocol.subscription import SQL92, TAG, SubscriptionData
from sparrowmq.protocol.sys_flag import PULL_SUBSCRIPTION
from sparrowmq.store.messages import QueueRead
from sparrowmq.store.store import ColdRead


class PullFilter:
    """How a pull reads: the store checks the hash in the queue unit first, and the record only if
    needed."""

    __slots__ = ("record", "tag_codes")

    def __init__(
        self,
        tag_codes: Container[int] | None = None,
        record: Callable[[bytes | memoryview], bool] | None = None,
    ) -> None:
        self.tag_codes = tag_codes
        self.record = record

    def read(self, broker: Broker, header: PullMessage, offset: int) -> QueueRead | ColdRead:
        """Read what a pull gets from its queue from an offset on."""
        # Comparisons, not min and max: this runs twice per message that a parked pull gets.
        config = broker.config
        max_count, max_bytes = header.max_msg_nums, header.max_msg_bytes
        if not 1 <= max_count <= config.max_pull_count:
            max_count = 1 if max_count < 1 else config.max_pull_count
        if not max_bytes:
            max_bytes = config.max_pull_bytes
        elif max_bytes > config.max_asked_pull_bytes:
            max_bytes = config.max_asked_pull_bytes
        return broker.store.read_queue(
            header.topic,
            header.queue_id,
            offset,
            max_count=max_count,
            max_bytes=max_bytes,
            accepts_tag=self.tag_codes,
            accepts_record=self.record,
            only_visible=True,
        )


EVERYTHING = PullFilter()


def filter_for(broker: Broker, header: PullMessage, group: SubscriptionGroupConfig) -> PullFilter:
    """The filter of a pull: its own if it carries one, otherwise the group's from the heartbeat."""
    if header.sys_flag & PULL_SUBSCRIPTION:
        expression_type = header.expression_type or TAG
        if expression_type == TAG and header.subscription in ("*", "", None):
            return EVERYTHING
        return _own_filter(header, expression_type)
    live = broker.consumers.live_or_last(header.consumer_group, broker.monotonic)
    if live is None:
        text = f"group {header.consumer_group} has no live member here; send a heartbeat first"
        raise RequestRefused(ResponseCode.SUBSCRIPTION_NOT_EXIST, text)
    if live.is_broadcasting and not group.consume_broadcast_enable:
        text = f"group {header.consumer_group} may not consume by broadcasting"
        raise RequestRefused(ResponseCode.NO_PERMISSION, text)
    wanted = live.subscriptions.get(header.topic)
    if wanted is None:
        text = f"group {header.consumer_group} does not subscribe to topic {header.topic}"
        raise RequestRefused(ResponseCode.SUBSCRIPTION_NOT_EXIST, text)
    if wanted.sub_version < header.sub_version:
        text = f"subscription of {header.consumer_group} to {header.topic} has no heartbeat yet"
        raise RequestRefused(ResponseCode.SUBSCRIPTION_NOT_LATEST, text)
    if wanted.is_tag:
        return EVERYTHING if wanted.takes_all else PullFilter(wanted.code_set)
    return sql_filter(wanted.sub_string)


def _own_filter(header: PullMessage, expression_type: str) -> PullFilter:
    try:
        wanted = SubscriptionData.build(
            header.topic,
            header.subscription,
            version=header.sub_version,
            expression_type=expression_type,
        )
    except ValueError as error:
        raise RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
    if wanted.is_tag:
        return EVERYTHING if wanted.takes_all else PullFilter(wanted.code_set)
    if expression_type != SQL92:
        text = f"expression type {expression_type} is unknown, allowed are TAG and SQL92"
        raise RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, text)
    return sql_filter(wanted.sub_string)


def sql_filter(expression: str) -> PullFilter:
    """The filter of an SQL92 condition. Raises RequestRefused naming the position of a mistake."""
    from sparrowmq.protocol.sql92 import Sql92Error

    try:
        return _compiled(expression)
    except Sql92Error as error:
        raise RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error


@lru_cache(maxsize=1024)
def _compiled(expression: str) -> PullFilter:
    # Imported when first used: the grammar library costs start-up time that few brokers need.
    from sparrowmq.protocol.sql92 import compile_sql92

    condition = compile_sql92(expression)

    def accepts(record: bytes | memoryview) -> bool:
        return condition.matches(
            decode_properties(decode_record(record, check_crc=False).properties)
        )

    return PullFilter(record=accepts)
