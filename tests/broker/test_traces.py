"""Messages about messages: the topic that clients with tracing on write to."""

from sparrowmq.protocol.names import TRACE_TOPIC
from tests.broker.world import World, world_with


def test_the_trace_topic_is_there_from_the_first_start_without_auto_creation() -> None:
    with world_with(auto_create_topic=False) as world:
        config = world.broker.topics.get(TRACE_TOPIC)
        assert config is not None
        assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)


def test_traces_are_stored_and_read_like_other_messages(world: World) -> None:
    world.send(TRACE_TOPIC, b"Pub\x01\x02")
    pulled = world.sim.wait(world.sim.client.pull(TRACE_TOPIC))
    assert pulled.bodies == [b"Pub\x01\x02"]
