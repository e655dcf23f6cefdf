"""Consumer groups: their members, and where they go on."""

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.errors import AdminError
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.connections import ConsumerConnection
from sparrowmq.protocol.headers.connections import GetConsumerConnections
from sparrowmq.protocol.headers.consumer_calls import InvokeResetOffset

_TIMEOUT_S = 5.0


async def group_members(admin: Admin, group: str) -> list[str]:
    """Client ids of a group's live members, on all brokers. Raises AdminError."""
    found: set[str] = set()
    for name, address in (await admin.masters()).items():
        try:
            response = await admin.client.peers.call(
                address, GetConsumerConnections(consumer_group=group), timeout_s=_TIMEOUT_S
            )
        except NetError as error:
            raise AdminError(f"broker {name} cannot be asked for members: {error}") from error
        if response.code == ResponseCode.CONSUMER_NOT_ONLINE:
            continue
        if response.code != ResponseCode.SUCCESS:
            raise AdminError(f"broker {name} answered {response.code}: {response.remark}")
        connected = ConsumerConnection.from_json(response.body).connection_set
        found |= {connection.client_id for connection in connected}
    return sorted(found)


async def reset_group_queue(
    admin: Admin, group: str, topic: str, broker_name: str, queue_id: int, offset: int
) -> None:
    """Let a group go on at an offset of one queue, its live members too. Raises AdminError."""
    address = (await admin.masters(brokers=[broker_name]))[broker_name]
    header = InvokeResetOffset(
        topic=topic, group=group, timestamp=-1, queue_id=queue_id, offset=offset
    )
    try:
        response = await admin.client.peers.call(address, header, timeout_s=_TIMEOUT_S)
    except NetError as error:
        raise AdminError(f"broker {broker_name} cannot be reached: {error}") from error
    if response.code != ResponseCode.SUCCESS:
        raise AdminError(f"broker {broker_name} answered {response.code}: {response.remark}")
