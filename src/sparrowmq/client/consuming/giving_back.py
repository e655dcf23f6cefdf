"""Giving messages back to brokers, which deliver them again later or keep them as dead letters."""

import logging

from sparrowmq.client.broker_calls import address_of, call
from sparrowmq.client.client import Client
from sparrowmq.client.errors import ClientError
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.headers.send_back import SendBack
from sparrowmq.protocol.message_ext import MessageExt

DEAD_LETTER = -1
"""The delay level that means: to the dead letters at once."""


class GivingBack:
    """For one group."""

    def __init__(
        self, client: Client, group: str, max_reconsume_times: int, log: logging.Logger
    ) -> None:
        self._client = client
        self._group = group
        self._max_reconsume_times = max_reconsume_times
        self._log = log

    async def give_back(self, message: MessageExt, delay_level: int) -> bool:
        """Whether the broker has it now."""
        header = SendBack(
            offset=message.log_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.msg_id,
            origin_topic=message.original_topic,
            unit_mode=False,
            max_reconsume_times=self._max_reconsume_times,
        )
        try:
            address = await address_of(self._client, message.topic, message.broker_name)
            await call(self._client, address, header)
        except (ClientError, NetError) as error:
            self._log.warning("message %s not given back: %s", message.msg_id, error)
            return False
        return True
