"""Pausing groups: brokers refuse their pulls, in all topics or in one.

What members have fetched already is handled still. Members ask again: Python's after a pause that
grows, Java's every 3 s.
"""

from sparrowmq.admin.cluster_calls import ClusterCalls
from sparrowmq.admin.groups import find_group, update_group, wanted_group
from sparrowmq.admin.members import connected
from sparrowmq.protocol.headers.admin import UpdateGroupForbidden
from sparrowmq.protocol.names import check_group, check_topic


async def set_paused(
    cluster: ClusterCalls, group: str, topic: str | None, *, paused: bool
) -> list[str]:
    """Let brokers refuse a group's pulls, or serve them again; names of the brokers that do.

    Raises NotFound, AdminError, PartlyDone. For one topic brokers have to be 5.0 or newer.
    """
    check_group(group)
    if topic is None:
        wanted = wanted_group(None, may_consume=not paused)
        await update_group(cluster, group, wanted, brokers=(), dry_run=False)
        return sorted(await cluster.masters())
    await find_group(cluster, group, await connected(cluster, group))
    route = await cluster.route(check_topic(topic))
    targets = await cluster.masters(brokers=sorted({b.broker_name for b in route.broker_datas}))
    header = UpdateGroupForbidden(group=group, topic=topic, readable=not paused)
    what = f"group {group} is {'paused' if paused else 'resumed'} in topic {topic}"
    return await cluster.change_each(what, targets, lambda _: (header, b""))
