"""The sender of a producer that has hooks."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec.structs import replace

from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.errors import ClientError
from sparrowmq.client.hooks import HookCalls, Sending, now_s
from sparrowmq.client.send_result import SendResult
from sparrowmq.client.sending.attempts import RetryRules
from sparrowmq.client.sending.fault_avoidance import FaultAvoidance
from sparrowmq.client.sending.packing import Packing
from sparrowmq.client.sending.queue_choice import Chooser
from sparrowmq.client.sending.sender import Sender
from sparrowmq.protocol.message import Message


class HookedSender(Sender):
    """Sends as Sender does, and calls hooks before and after. It is a separate class so that
    producers without hooks do not even check for them."""

    def __init__(
        self,
        client: ClientCore,
        packing: Packing,
        rules: RetryRules,
        hooks: HookCalls,
        *,
        faults: FaultAvoidance | None,
        has_trace: bool,
        when_refused: Mapping[str, str],
    ) -> None:
        super().__init__(
            client, packing, rules, faults=faults, has_trace=has_trace, when_refused=when_refused
        )
        self._hooks = hooks

    async def send(self, message: Message, choose: Chooser | None, limit_s: float) -> SendResult:
        """As Sender's."""
        send = super().send
        return await self._one(message, lambda changed: send(changed, choose, limit_s))

    async def send_system(
        self,
        message: Message,
        choose: Chooser | None,
        limit_s: float,
        system: Mapping[str, str],
    ) -> SendResult:
        """As Sender's."""
        send = super().send_system
        return await self._one(message, lambda changed: send(changed, choose, limit_s, system))

    async def send_named(
        self,
        message: Message,
        choose: Chooser | None,
        limit_s: float,
        system: Mapping[str, str],
    ) -> SendResult:
        """As Sender's."""
        send = super().send_named
        return await self._one(message, lambda changed: send(changed, choose, limit_s, system))

    async def send_oneway(self, message: Message, choose: Chooser | None, limit_s: float) -> None:
        """Like Sender.send_oneway; hooks see no result."""
        send = super().send_oneway

        async def send_all(changed: Sequence[Message]) -> Sequence[SendResult]:
            await send(changed[0], choose, limit_s)
            return ()

        await self._around([message], send_all)

    async def send_batch(self, messages: Sequence[Message], limit_s: float) -> list[SendResult]:
        """Like Sender.send_batch; hooks see the batch as one send."""
        send = super().send_batch
        return list(await self._around(messages, lambda changed: send(changed, limit_s)))

    async def _one(
        self, message: Message, send: Callable[[Message], Awaitable[SendResult]]
    ) -> SendResult:
        async def send_all(changed: Sequence[Message]) -> Sequence[SendResult]:
            return [await send(changed[0])]

        return (await self._around([message], send_all))[0]

    async def _around(
        self,
        messages: Sequence[Message],
        send: Callable[[Sequence[Message]], Awaitable[Sequence[SendResult]]],
    ) -> Sequence[SendResult]:
        sending = Sending(self._packing.group, tuple(messages))
        began_s = now_s()
        self._hooks.before_send(sending)
        try:
            results = await send(self._with_properties(messages, sending.properties))
            sending.results = tuple(results)  # a copy: hooks cannot change what the caller gets
        except BaseException as error:
            sending.error = error
            if isinstance(error, ClientError):
                sending.results = tuple(error.stored)
            raise
        finally:
            self._hooks.after_send(sending, began_s)
        return results

    def _with_properties(
        self, messages: Sequence[Message], added: Mapping[str, str]
    ) -> Sequence[Message]:
        if not added:
            return messages
        try:
            return [replace(one, properties={**added, **one.properties}) for one in messages]
        except (TypeError, ValueError) as error:
            text = (
                "hooks of group %s add properties that no message can have; sent without them: %s"
            )
            self._client.log.error(text, self._packing.group, error)
            return messages
