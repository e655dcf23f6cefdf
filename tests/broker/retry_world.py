"""A message that the group billing fails to consume, in a DeliveryWorld."""

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.message_ext import MessageExt
from tests.broker.delivery_world import DeliveryWorld

RETRY, DEAD = "%RETRY%billing", "%DLQ%billing"


def first_message(world: DeliveryWorld) -> MessageExt:
    """Sent to orders, with everything a message may carry."""
    world.send("orders", b"an order", TAGS="created", KEYS="o-1 o-2", UNIQ_KEY="U1", mine="yes")
    (message,) = world.messages("orders")
    return message


def fail_until_dead(world: DeliveryWorld, message: MessageExt) -> list[MessageExt]:
    """Give back every delivery; all messages that came through the retry topic."""
    seen = 0
    while True:
        assert world.give_back(message, "billing").code == ResponseCode.SUCCESS
        world.pass_time(2 * 3600)
        retried = world.messages(RETRY)
        if len(retried) == seen:
            return retried
        seen += 1
        message = retried[-1]
