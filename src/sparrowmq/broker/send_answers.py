"""When a send is answered: at once, or when its message is as safe as it will get."""

from typing import TYPE_CHECKING

from sparrowmq.net.routes import Reply, Request
from sparrowmq.protocol.headers.send import AnySend
from sparrowmq.protocol.properties import WAIT_STORE_OK, parse_properties

if TYPE_CHECKING:
    from sparrowmq.broker.broker import Broker


def answer_when_safe(
    broker: "Broker", request: Request[AnySend], reply: Reply, end_offset: int
) -> Reply | None:
    """The reply to a send, or None if the sender has to wait for it until `end_offset` is safe."""
    if broker.durability.is_sync and _wants_to_wait(request):
        return broker.durability.reply_when_safe(request, reply, end_offset)
    return reply


def _wants_to_wait(request: Request[AnySend]) -> bool:
    """Whether the sender wants its answer only when the message is as safe as it will get."""
    # Search before parsing: hardly any sender says false, and parsing is expensive.
    text = request.header.properties
    return "WAIT\x01false" not in text or parse_properties(text).get(WAIT_STORE_OK) != "false"
