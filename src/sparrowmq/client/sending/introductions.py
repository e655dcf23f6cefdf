"""Telling brokers of a producer before they have to call it: transactions and requests need it."""

import asyncio
from collections.abc import Sequence
from functools import partial

from sparrowmq.client.client import Client
from sparrowmq.protocol.message import MessageQueue


class Introductions:
    """Which brokers know this client on its present connection.

    The next regular heartbeat may be 30 s away, and a broker pushes replies and asks about
    transactions only where a heartbeat came from.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._told: set[str] = set()
        self._is_listening = False

    async def introduce(self, queues: Sequence[MessageQueue]) -> None:
        """Have a heartbeat on its way to every broker of these queues, ahead of what follows."""
        if not self._is_listening:
            self._is_listening = True
            self._client.when_peer_closes(self._told.discard)
        masters = {self._client.route_table.master(queue.broker_name) for queue in queues}
        strangers = {address for address in masters if address is not None} - self._told
        if strangers:
            self._told |= strangers
            self._client.keep(partial(self._tell, strangers), "introduction")
            # Beside the send, for a broker that is not there must not cost its time. Two turns of
            # the loop, one for the task and one for its calls, put it first on the connection.
            for _ in range(2):
                await asyncio.sleep(0)

    async def _tell(self, strangers: set[str]) -> None:
        """One that cannot be told now is told the next time."""
        heard = await self._client.heartbeats.send_to(sorted(strangers))
        self._told.difference_update(strangers - heard)
