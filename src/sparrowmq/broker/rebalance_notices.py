"""Notices that make consumers rebalance at once instead of at their next 20 s timer.

Only clustering groups get them: members of a broadcasting group share nothing. An operator can
switch them off for the broker (notifyConsumerIdsChangedEnable) or for one group.
"""

from collections.abc import Collection, Iterable

from sparrowmq.broker.groups import Groups
from sparrowmq.broker.live_clients import ConsumerGroup, Consumers
from sparrowmq.broker.watched_groups import WatchedGroups
from sparrowmq.net.connection import Connection
from sparrowmq.net.errors import ConnectionLost
from sparrowmq.protocol.headers.clients import NotifyConsumerIdsChanged


class RebalanceNotices:
    """Sends notices, and notes which groups are rebalancing."""

    def __init__(
        self, consumers: Consumers, groups: Groups, watched: WatchedGroups, *, is_enabled: bool
    ) -> None:
        self.is_enabled = is_enabled
        """Whether the broker's configuration allows notices; changes at an operator's request."""
        self._consumers = consumers
        self._groups = groups
        self._watched = watched

    def members_changed(self, group: ConsumerGroup) -> None:
        """A member joined or left: notify all members."""
        if self._may_notify(group):
            self._watched.begin_rebalance(group.name)
            _send(group.members, NotifyConsumerIdsChanged(consumer_group=group.name))

    def ask_to_rebalance(self, group_name: str, connection: Connection) -> None:
        """Make one member rebalance although no member joined or left."""
        group = self._consumers.group(group_name)
        if group is not None and connection in group.members and self._may_notify(group):
            _send([connection], NotifyConsumerIdsChanged(consumer_group=group_name))

    def queues_freed(self, group_name: str, client_ids: Collection[str]) -> None:
        """Notify members that queues whose locks they were refused are now free."""
        group = self._consumers.group(group_name)
        if group is None or not self._may_notify(group):
            return
        members = [member for member in map(group.find, client_ids) if member is not None]
        notice = NotifyConsumerIdsChanged(consumer_group=group_name, is_freed=True)
        _send([member.connection for member in members], notice)

    def _may_notify(self, group: ConsumerGroup) -> bool:
        if group.is_broadcasting or not self.is_enabled:
            return False
        config = self._groups.get(group.name)
        return config is None or config.notify_consumer_ids_changed_enable


def _send(connections: Iterable[Connection], notice: NotifyConsumerIdsChanged) -> None:
    for connection in tuple(connections):
        try:
            connection.send_oneway(notice)
        except ConnectionLost:
            continue  # `connection_closed` follows and removes the member
