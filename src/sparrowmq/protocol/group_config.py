"""Consumer groups as brokers configure them."""

from enum import StrEnum
from typing import Self

from msgspec import field

from sparrowmq.protocol.body import Body, DataVersion
from sparrowmq.protocol.delay import RETRY_DELAYS_MS
from sparrowmq.protocol.java_numbers import Int, Long


class RetryPolicyType(StrEnum):
    """How the delay before a retry is chosen."""

    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"

    @classmethod
    def _missing_(cls, value: object) -> Self:
        return cls(cls.CUSTOMIZED)


class CustomizedRetryPolicy(Body, frozen=True, kw_only=True):
    """Delays from a table; the first retry takes its third entry, as level 3 is the first."""

    next: tuple[int, ...] = RETRY_DELAYS_MS

    def delay_ms(self, reconsume_times: int) -> int:
        """Milliseconds before the attempt that follows `reconsume_times` failed ones."""
        return self.next[min(max(reconsume_times, 0) + 2, len(self.next) - 1)]


class ExponentialRetryPolicy(Body, frozen=True, kw_only=True):
    """Delays that grow by a factor from one attempt to the next."""

    initial: int = 5_000
    max: int = 7_200_000
    multiplier: int = 2

    def delay_ms(self, reconsume_times: int) -> int:
        """Milliseconds before the attempt that follows `reconsume_times` failed ones."""
        attempts = min(max(reconsume_times, 0), 32)
        return min(self.max, self.initial * int(self.multiplier**attempts))


class GroupRetryPolicy(Body, frozen=True, kw_only=True):
    """The policy of a group, of one of two kinds (5.x)."""

    type: RetryPolicyType = RetryPolicyType.CUSTOMIZED
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None

    def delay_ms(self, reconsume_times: int) -> int:
        """Milliseconds before the attempt that follows `reconsume_times` failed ones."""
        if self.type is RetryPolicyType.EXPONENTIAL and self.exponential_retry_policy is not None:
            return self.exponential_retry_policy.delay_ms(reconsume_times)
        if self.type is RetryPolicyType.CUSTOMIZED and self.customized_retry_policy is not None:
            return self.customized_retry_policy.delay_ms(reconsume_times)
        return CustomizedRetryPolicy().delay_ms(reconsume_times)


class SimpleSubscriptionData(Body, frozen=True, kw_only=True):
    """A subscription fixed by the operator."""

    topic: str | None = None
    expression_type: str | None = None
    expression: str | None = None
    version: int = 0


class SubscriptionGroupConfig(Body, frozen=True, kw_only=True):
    """A consumer group on one broker."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: Int = 1
    retry_max_times: Int = 16
    group_retry_policy: GroupRetryPolicy = GroupRetryPolicy()
    broker_id: Long = 0
    """The broker that members pull from first; 0 is the master."""
    which_broker_when_consume_slowly: Long = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Int = 0
    consume_timeout_minute: Int = 15
    subscription_data_set: tuple[SimpleSubscriptionData, ...] | None = None
    attributes: dict[str, str] = field(default_factory=dict)


class SubscriptionGroupTable(Body, frozen=True, kw_only=True):
    """All groups of a broker; also the file subscriptionGroup.json."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    forbidden_table: dict[str, dict[str, int]] = field(default_factory=dict)
    data_version: DataVersion = DataVersion()


class SubscriptionGroupList(Body, frozen=True, kw_only=True):
    """Groups to create or change at once."""

    group_config_list: tuple[SubscriptionGroupConfig, ...] = ()
