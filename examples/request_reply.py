"""Request and reply: ask a service through the broker, and wait for its answer.

    sparrowmq up                                     # in another terminal
    python -m examples.request_reply

The till does not know where the price service runs or how many of them there are: a request goes
to one member of its group, and the reply comes back to the till that asked. Unlike a call over
HTTP, a request to a service that is down is kept. The till decides how long it waits.
"""

import asyncio

from sparrowmq import BrokerRefused, ClientError, Message, MessageExt, Producer, PushConsumer

TOPIC = "price-requests"
PRICES = {"tea": 4, "coffee": 5}


class PriceService:
    """Replies need a producer, of a group of its own."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    async def answer(self, request: MessageExt) -> None:
        price = PRICES.get(request.json(str))
        reply = b"not sold here" if price is None else f"{price} €".encode()
        try:
            await self._producer.reply(request, reply)
        except BrokerRefused:
            # The till has gone, and a retry would not bring it back: the request is done
            print(f"price service: nobody waits for the price of {request.json(str)} any more")


async def ask(till: Producer, article: str, timeout_s: float | None = None) -> str:
    """Without `timeout_s` the till waits for 3 s, as long as for any send."""
    try:
        reply = await till.request(Message.json(TOPIC, article), timeout_s=timeout_s)
    except ClientError as error:  # RequestTimedOut when the request was stored and no reply came
        return f"no price now ({error})"
    return reply.body.decode()


async def main() -> None:
    async with Producer("till") as till:
        # No service runs yet: the till gives up, while the request waits in the broker
        print(f"cocoa: {await ask(till, 'cocoa', timeout_s=0.2)}")
        async with (
            Producer("price-service") as replies,
            PushConsumer("price-service", {TOPIC: "*"}, from_where="FIRST_OFFSET") as consumer,
        ):
            await consumer.start(each=PriceService(replies).answer)
            for article in ("tea", "coffee", "milk"):
                print(f"{article}: {await ask(till, article)}")


if __name__ == "__main__":
    asyncio.run(main())
