"""Reports the progress of a stream or an archive as a consumer group, which all tools can show."""

import json
import logging
import os
import socket
import uuid

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.spark.errors import RocketMQError
from sparrowmq.spark.positions import Positions
from sparrowmq.spark.wire.cluster import Queue, RemoteCluster

_log = logging.getLogger(__name__)


class GroupProgress:
    """Stores offsets for a group at the brokers; does nothing without a group.

    A broker that refuses them does not stop the query: Spark's checkpoint is the source of truth,
    and the next commit brings the same or later offsets.
    """

    def __init__(self, cluster: RemoteCluster, group: str | None) -> None:
        self._cluster = cluster
        self._group = group
        self._stored: Positions = {}
        self._introduced: set[tuple[str, str]] = set()

    def commit(self, positions: Positions) -> None:
        """Store that everything before these positions is done."""
        if self._group is None:
            return
        for queue, at in positions.items():
            if self._stored.get(queue) == at:
                continue
            try:
                self._introduce(self._group, queue)
                self._cluster.update_consumer_offset(self._group, queue, at)
                self._stored[queue] = at
            except RocketMQError as error:
                _log.warning("progress of group %s is not stored: %s", self._group, error)

    def _introduce(self, group: str, queue: Queue) -> None:
        """Send a heartbeat for the group: brokers keep offsets only of groups they know.

        The member leaves again at once: it must not get queues when others rebalance.
        """
        where = (queue.topic, queue.broker_name)
        if where in self._introduced:
            return
        client_id = f"{socket.gethostname()}@{os.getpid()}#spark-{uuid.uuid4().hex[:8]}"
        broker = self._cluster.broker(queue.topic, queue.broker_name)
        broker.ask(RequestCode.HEART_BEAT, {}, _heartbeat(client_id, group, queue.topic))
        leaving = {"clientID": client_id, "consumerGroup": group}
        broker.ask(RequestCode.UNREGISTER_CLIENT, leaving)
        self._introduced.add(where)


def _heartbeat(client_id: str, group: str, topic: str) -> bytes:
    subscription = {
        "classFilterMode": False,
        "codeSet": [],
        "expressionType": "TAG",
        "subString": "*",
        "subVersion": 0,
        "tagsSet": [],
        "topic": topic,
    }
    consumer = {
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": "CONSUME_ACTIVELY",
        "groupName": group,
        "messageModel": "CLUSTERING",
        "subscriptionDataSet": [subscription],
        "unitMode": False,
    }
    heartbeat = {"clientID": client_id, "consumerDataSet": [consumer], "producerDataSet": []}
    return json.dumps(heartbeat, separators=(",", ":")).encode()
