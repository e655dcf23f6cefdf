"""Groups whose pulls need extra checks: those that rebalance, and those that have a quota.

A pull only looks up its group's name, so both cost nothing for other groups.
"""

from sparrowmq.broker.traffic.group_quota import GroupQuota
from sparrowmq.clock import Clock
from sparrowmq.protocol.group_config import SubscriptionGroupConfig
from sparrowmq.protocol.limits import NO_QUOTA, quota_of
from sparrowmq.protocol.names import is_system_group


class WatchedGroups:
    """The watched groups, and why they are watched."""

    def __init__(self, monotonic: Clock) -> None:
        self.names: set[str] = set()
        """All watched groups."""
        self.rebalancing: dict[str, int] = {}
        """Groups whose members were recently notified that one joined or left, and when."""
        self.quotas: dict[str, GroupQuota] = {}
        self._monotonic = monotonic

    def begin_rebalance(self, group: str) -> None:
        """The members of a group are being notified."""
        self.rebalancing[group] = self._monotonic()
        self.names.add(group)

    def end_rebalance(self, group: str) -> None:
        """No member waits for an owner of the group's queues any more."""
        self.rebalancing.pop(group, None)
        self._look(group)

    def learn(self, config: SubscriptionGroupConfig) -> None:
        """A group is new, or has changed."""
        group = config.group_name
        quota = quota_of(config.attributes) if config.attributes else NO_QUOTA
        known = self.quotas.get(group)
        if not quota or is_system_group(group):
            self.forget(group)
        elif known is None:
            self.quotas[group] = GroupQuota(group, quota, self._monotonic)
        elif known.meter.buckets.quota != quota:
            known.change(quota)
        self._look(group)

    def forget(self, group: str) -> None:
        """A group no longer has a quota, or is gone; pulls that wait for quota are served."""
        known = self.quotas.pop(group, None)
        if known is not None:
            known.change(NO_QUOTA)
            self._look(group)

    def _look(self, group: str) -> None:
        if group in self.rebalancing or group in self.quotas:
            self.names.add(group)
        else:
            self.names.discard(group)
