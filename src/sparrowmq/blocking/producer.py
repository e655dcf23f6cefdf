"""Producers for programs without asyncio; see `blocking`."""

from functools import partial
from typing import TypeVar, Unpack

from sparrowmq.blocking.facade import GroupFacade, awaited, called
from sparrowmq.client.sending.producer import Producer as AsyncProducer
from sparrowmq.client.sending.producer import SendSettings
from sparrowmq.client.sending.transactional_producer import (
    TransactionalProducer as AsyncTransactionalProducer,
)
from sparrowmq.client.sending.transactional_producer import TransactionListener
from sparrowmq.client.setting_names import takes_settings_of

P = TypeVar("P", bound=AsyncProducer)


class _Sending(GroupFacade[P]):
    """The methods that all blocking producers share."""

    _survives_fork = True

    async def _begin(self, inner: P) -> None:
        await inner.start()

    def start(self) -> None:
        """Start the producer; `with` does it."""
        self._start(self._begin)

    send = awaited(AsyncProducer.send)
    send_batch = awaited(AsyncProducer.send_batch)
    send_oneway = awaited(AsyncProducer.send_oneway)
    request = awaited(AsyncProducer.request)
    reply = awaited(AsyncProducer.reply)
    recall = awaited(AsyncProducer.recall)
    queues = awaited(AsyncProducer.queues)
    diverted = called(AsyncProducer.diverted)


@takes_settings_of(AsyncProducer, without=["client"])
class Producer(_Sending[AsyncProducer]):
    """A blocking `sparrowmq.Producer`; takes the same settings."""

    def __init__(self, group: str, **settings: Unpack[SendSettings]) -> None:
        super().__init__(group, partial(AsyncProducer, group, **settings))


@takes_settings_of(AsyncTransactionalProducer, without=["client", "threads"])
class TransactionalProducer(_Sending[AsyncTransactionalProducer]):
    """A blocking `sparrowmq.TransactionalProducer`. The listener's functions run in threads."""

    def __init__(
        self, group: str, listener: TransactionListener, **settings: Unpack[SendSettings]
    ) -> None:
        super().__init__(group, partial(AsyncTransactionalProducer, group, listener, **settings))

    send_in_transaction = awaited(AsyncTransactionalProducer.send_in_transaction)
