"""Changing which broker of a name is the master."""

from sparrowmq.admin.cluster_calls import ClusterCalls
from sparrowmq.admin.errors import AdminError, NotFound, shown
from sparrowmq.protocol.headers.replication import HandedOver, HandOver, TakeOver
from sparrowmq.protocol.route import MASTER_ID, BrokerData


async def hand_over(cluster: ClusterCalls, name: str, slave_id: int | None) -> str:
    """Let the master of a name give its role to a slave; the address of the new master.

    Raises NotFound, and AdminError where the roles stay as they are.
    """
    data = await _brokers_of(cluster, name)
    master = data.broker_addrs.get(MASTER_ID)
    if master is None:
        raise AdminError(
            f"broker {name} has no master that could hand over; to make a slave the master"
            f" although messages may be lost: sparrowmq broker promote {name} --accept-loss {name}"
        )
    header = HandOver(slave_id=-1 if slave_id is None else slave_id)
    return (await cluster.call(master, header)).header(HandedOver).new_master


async def promote(
    cluster: ClusterCalls, name: str, slave_id: int | None, accept_loss: str | None
) -> str:
    """Make a slave the master, by the present master or, when that is gone, without it.

    Raises NotFound, and AdminError where the roles stay as they are.
    """
    data = await _brokers_of(cluster, name)
    if accept_loss is None or MASTER_ID in data.broker_addrs:
        return await hand_over(cluster, name, slave_id)
    slaves = {each: at for each, at in data.broker_addrs.items() if each != MASTER_ID}
    if slave_id is None and len(slaves) > 1:
        ids = ", ".join(map(str, sorted(slaves)))
        raise AdminError(f"broker {name} has several slaves: say which one with --id; {ids}")
    chosen = next(iter(slaves)) if slave_id is None else slave_id
    if chosen not in slaves:
        raise NotFound(
            "slave", f"{chosen} of broker {name}", f"registered are: {shown(map(str, slaves))}"
        )
    await cluster.call(slaves[chosen], TakeOver(accept_loss=accept_loss))
    return slaves[chosen]


async def _brokers_of(cluster: ClusterCalls, name: str) -> BrokerData:
    table = (await cluster.info()).broker_addr_table
    if name not in table:
        raise NotFound("broker", name, f"registered are: {shown(table)}")
    return table[name]
