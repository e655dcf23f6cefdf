"""Transactions in a world of deliveries: half messages, their ends, and producers to ask."""

from sparrowmq.broker.live_clients import LiveMember
from sparrowmq.net.routes import Reply
from sparrowmq.protocol.headers.transactions import CheckTransactionState, EndTransaction
from sparrowmq.protocol.ids import OffsetId
from tests.broker.delivery_world import DeliveryWorld, Peer, Sent

GROUP = "orders-svc"


def half(world: DeliveryWorld, body: bytes = b"an order", **properties: str) -> Sent:
    """A half message for the second queue of orders."""
    return world.send("orders", body, queue_id=1, TRAN_MSG="true", PGROUP=GROUP, **properties)


def end(
    world: DeliveryWorld, sent: Sent, kind: int, *, asked: bool = False, group: str = GROUP
) -> Reply:
    """A producer ends a transaction by itself, or with `asked` in answer to a check."""
    header = EndTransaction(
        producer_group=group,
        tran_state_table_offset=sent.queue_offset,
        commit_log_offset=OffsetId.parse(sent.msg_id).log_offset,
        commit_or_rollback=kind,
        from_transaction_check=asked,
    )
    return world.call(header)


def answer(world: DeliveryWorld, peer: Peer, kind: int) -> Reply:
    """A producer answers the last check."""
    question, _ = peer.calls[-1]
    assert isinstance(question, CheckTransactionState)
    header = EndTransaction(
        producer_group=GROUP,
        tran_state_table_offset=question.tran_state_table_offset,
        commit_log_offset=question.commit_log_offset,
        commit_or_rollback=kind,
        from_transaction_check=True,
    )
    return world.call(header, peer=peer)


def producer(world: DeliveryWorld, name: str = "p1", group: str = GROUP) -> Peer:
    """A live producer; its calls are the checks it received."""
    peer = Peer(name)
    world.broker.producers.join(group, LiveMember(name, peer.connection, "JAVA", 500, world.now_ms))
    return peer


def bodies(world: DeliveryWorld) -> list[bytes]:
    """What was delivered."""
    return [message.body for message in world.messages("orders", 1)]
