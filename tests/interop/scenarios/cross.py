"""Mixed clusters: our broker at Apache's name server, and Apache's broker at ours."""

from types import ModuleType

from sparrowmq.testing.held_port import HeldPort
from tests.interop import apache, raw, sparrow
from tests.interop.cluster import Settings, accepts
from tests.interop.outcomes import bodies, statuses
from tests.interop.registry import Outcome, check, scenario
from tests.interop.scene import Scene

GET_ROUTE = 105


@scenario(clients=("java5", "go", "python"), needs="cross", lane="apart", compared=False)
def our_broker_registers_at_apaches_name_server(scene: Scene) -> Outcome:
    return _mixed(scene, broker=sparrow, name_server=apache)


@scenario(clients=("java5", "go", "python"), needs="cross", lane="apart", compared=False)
def apaches_broker_registers_at_our_name_server(scene: Scene) -> Outcome:
    return _mixed(scene, broker=apache, name_server=sparrow)


def _mixed(scene: Scene, *, broker: ModuleType, name_server: ModuleType) -> Outcome:
    held = HeldPort()
    scene.closing(held.close)
    address = held.address
    server = name_server.start_name_server(scene.folder / "name-server", address)
    scene.closing(server.stop)
    scene.wait_until(lambda: accepts(address), "the name server listens")
    mixed = scene.on(broker.start(scene.folder / "broker", Settings(), name_server=address))
    known = mixed.topic("made", queues=3)
    producer = mixed.producer()
    sent = producer.send(known, [f"m-{n}" for n in range(9)])
    auto = mixed.name("auto")
    sent += producer.send(auto, [f"a-{n}" for n in range(8)])
    mixed.wait_for_route(auto)
    got = mixed.push_consumer(known).received(9) + mixed.push_consumer(auto, "other").received(8)
    check(statuses(sent) == {"SEND_OK": 17}, f"sends failed: {statuses(sent)}")
    check(len(set(bodies(got))) == 17, "messages are missing")
    mixed.cluster.stop_broker()
    # Unregistering or losing the connection ends the route at once; clients keep theirs.
    mixed.wait_until(
        lambda: raw.call(address, GET_ROUTE, {"topic": known}).code != 0, "the route goes"
    )
    return {"messages": len(got)}
