"""Asynchronous work: answer the user now, do what takes long afterwards.

    sparrowmq up                                     # in another terminal
    python -m examples.after_the_answer

A sign-up needs a welcome letter, which takes a while and may fail. The answer waits only until the
broker has stored the task: milliseconds, however slow, busy or broken the letters are. To show
that, the worker starts after the last answer here. A web service around it: web_service.py.
"""

import asyncio
import time

from sparrowmq import Message, MessageExt, Producer, PushConsumer, RetryLater

TOPIC = "sign-ups"
LETTER_S = 0.2
"""How long a letter takes, in the place of rendering and sending it."""


async def sign_up(producer: Producer, name: str) -> str:
    """The user waits for this, so it does only what the answer needs."""
    begin_s = time.perf_counter()
    await producer.send(Message.json(TOPIC, name))  # raises ClientError if no broker stores it
    return f"{name}, you are signed up (after {(time.perf_counter() - begin_s) * 1000:.0f} ms)"


class Letters:
    """The worker. Twenty letters at a time are the default; `workers=` of the consumer says it."""

    def __init__(self, names: set[str]) -> None:
        self._missing = set(names)
        self.all_sent = asyncio.Event()

    async def send(self, message: MessageExt) -> None:
        """Returning acknowledges the task; whatever is raised delivers it again later."""
        name = message.json(str)
        await asyncio.sleep(LETTER_S)
        if name == "Ben" and message.reconsume_times == 0:
            print(f"letter to {name}: the mail server is busy, again in a second")
            raise RetryLater("mail server busy", delay_level=1)
        print(f"letter to {name}: sent in attempt {message.reconsume_times + 1}")
        self._missing.discard(name)
        if not self._missing:
            self.all_sent.set()


async def main() -> None:
    names = ["Ada", "Ben", "Cleo"]
    async with Producer("site") as producer:
        for name in names:
            print(await sign_up(producer, name))
    letters = Letters(set(names))
    async with PushConsumer("letters", {TOPIC: "*"}, from_where="FIRST_OFFSET") as consumer:
        await consumer.start(each=letters.send)
        await letters.all_sent.wait()


if __name__ == "__main__":
    asyncio.run(main())
