"""Request and reply: send a message and wait for its consumer's answer.

RequestTimedOut is the ClientError for a reply that did not come in time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from sparrowmq.client.argument_checks import MAX_INT
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.errors import ClientError, NotStarted
from sparrowmq.client.send_result import SendResult
from sparrowmq.protocol import properties as names
from sparrowmq.protocol.message import Message
from sparrowmq.protocol.message_ext import MessageExt

_REPLY_TOPIC = "{cluster}_REPLY_TOPIC"


class RequestTimedOut(ClientError):
    """No reply within `timeout_s`; `is_stored` says whether a broker confirmed that it has the
    request. If it is False, the request may be stored nevertheless."""

    def __init__(self, topic: str, timeout_s: float, *, is_stored: bool) -> None:
        what = (
            "the request is stored (is_stored is True): is there a consumer that replies?"
            if is_stored
            else "the request itself was not confirmed (is_stored is False)"
        )
        super().__init__(f"no reply to a request to topic {topic} within {timeout_s:g} s; {what}")
        self.topic = topic
        self.timeout_s = timeout_s
        self.is_stored = is_stored


class Requests:
    """One producer's requests that are waiting for replies, by correlation id."""

    def __init__(self, client: ClientCore) -> None:
        self._client = client
        self._waiting: dict[str, asyncio.Future[MessageExt]] = {}

    async def ask(
        self,
        topic: str,
        limit_s: float,
        send: Callable[[Mapping[str, str]], Awaitable[SendResult]],
    ) -> MessageExt:
        """Send with the properties of a request and wait for the reply. Raises RequestTimedOut, or
        whatever the send raises."""
        correlation_id = self._client.unique_ids.next()
        asks = {
            names.CORRELATION_ID: correlation_id,
            names.REPLY_TO_CLIENT: self._client.client_id,
            names.TTL: str(int(min(limit_s * 1000, MAX_INT))),  # inf waits forever
        }
        reply: asyncio.Future[MessageExt] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = reply
        is_stored = False
        try:
            async with asyncio.timeout(limit_s):
                await send(asks)
                is_stored = True
                return await reply
        except TimeoutError:
            raise RequestTimedOut(topic, limit_s, is_stored=is_stored) from None
        finally:
            del self._waiting[correlation_id]

    def close(self) -> None:
        """Fail the waiting requests with NotStarted: the producer stops."""
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(NotStarted("the producer was stopped before a reply came"))

    def take(self, correlation_id: str, reply: MessageExt) -> bool:
        """Hand a reply to its request. Returns whether a request was waiting for it."""
        waiting = self._waiting.get(correlation_id)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(reply)
        return True


def reply_to(request: MessageExt, body: bytes) -> tuple[Message, dict[str, str]]:
    """The message that answers a request, and the properties that route it to the requester.

    Raises ValueError if the message is not a request.
    """
    found = request.properties
    missing = [
        name
        for name in (names.CLUSTER, names.CORRELATION_ID, names.REPLY_TO_CLIENT)
        if name not in found
    ]
    if missing:
        text = f"message {request.msg_id} is not a request: it has no {', '.join(missing)}"
        raise ValueError(text)
    message = Message(_REPLY_TOPIC.format(cluster=found[names.CLUSTER]), body)
    answers = {
        names.MESSAGE_TYPE: names.REPLY_MESSAGE_TYPE,
        names.CORRELATION_ID: found[names.CORRELATION_ID],
        names.REPLY_TO_CLIENT: found[names.REPLY_TO_CLIENT],
    }
    if names.TTL in found:
        answers[names.TTL] = found[names.TTL]
    return message, answers
