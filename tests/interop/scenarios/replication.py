"""Masters and slaves, as Apache's tools see them."""

import re

from tests.interop import raw, sparrow
from tests.interop.cluster import GET_CLUSTER_INFO, Settings
from tests.interop.registry import Outcome, check, scenario
from tests.interop.scenarios.administration import printed
from tests.interop.scene import Scene

GET_HA_STATUS = 907


@scenario(clients=("java5",), needs="replication", lane="apart", compared=False)
def mqadmin_shows_how_far_slaves_are(scene: Scene) -> Outcome:
    """Of our own brokers: what Apache's prints is in the source of its HAStatusSubCommand."""
    own = scene.on(sparrow.start(scene.folder / "master", Settings()))
    server = sparrow.start_slave(own.cluster, scene.folder / "slave")
    scene.closing(server.stop)
    own.wait_until(lambda: _slave(own) is not None, "the slave is registered")
    topic = own.topic("copied", queues=1)
    own.producer().send(topic, [f"m-{n}" for n in range(9)])
    own.wait_until(lambda: b'"diff":0' in _status(own).body, "the slave has everything")
    of_master = printed(own.mqadmin("haStatus", "-b", own.cluster.broker))
    of_cluster = printed(own.mqadmin("haStatus", "-c", "DefaultCluster"))
    slave = _slave(own) or ""
    of_slave = printed(own.mqadmin("haStatus", "-b", slave))
    check("#SlaveNum 1" in of_master and "#InSyncSlaveNum 1" in of_master, str(of_master))
    check(any(re.match(rf"{slave} \d+ 0 \S+ OK \d+", line) for line in of_master), str(of_master))
    check(of_cluster == of_master, f"{of_cluster} is not {of_master}")
    check(f"#MasterAddr {own.cluster.broker}" in of_slave, str(of_slave))
    check("#MasterFlushOffset 0" in of_slave, str(of_slave))
    return {"master": len(of_master), "slave": len(of_slave)}


def _status(scene: Scene) -> raw.RawReply:
    return raw.call(scene.cluster.broker, GET_HA_STATUS)


def _slave(scene: Scene) -> str | None:
    """The address of broker 1, as the name server knows it."""
    body = raw.call(scene.cluster.name_server, GET_CLUSTER_INFO).body.decode()
    found = re.search(r'"?1"?:"([^"]+)"', body)
    return found.group(1) if found else None
