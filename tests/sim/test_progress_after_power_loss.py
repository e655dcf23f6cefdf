"""Progress that survived a power loss although its messages did not."""

from sparrowmq.broker.consumer_offsets import ConsumerOffsets
from sparrowmq.broker.replication.table_rules import OffsetChange
from sparrowmq.protocol.group_config import SubscriptionGroupConfig
from sparrowmq.protocol.headers.groups import CreateGroup
from sparrowmq.protocol.headers.offsets import (
    OffsetFound,
    QueryConsumerOffset,
    UpdateConsumerOffset,
)
from sparrowmq.testing.sim_cluster import SimCluster


def test_progress_past_the_end_of_a_queue_is_taken_back() -> None:
    offsets = ConsumerOffsets({"t@g": {0: 7, 1: 3}, "t@h": {0: 2}})
    assert offsets.clamp(lambda topic, queue_id: 5) == [("t@g", 0, 7, 5)]
    assert dict(offsets.rows()) == {"t@g": {0: 5, 1: 3}, "t@h": {0: 2}}
    assert offsets.take_dirty() == [OffsetChange("t@g", 0, 5, rewind=1)]


def test_a_group_sees_new_messages_after_a_power_cut_that_took_consumed_ones() -> None:
    # A flush interval that never comes: everything since the start is lost with the power
    with SimCluster(seed=1, flush_interval_s=3000.0).run() as sim:
        for number in range(10):
            sim.wait(sim.client.send("orders", b"lost %d" % number))
        commit = UpdateConsumerOffset(
            consumer_group="g", topic="orders", queue_id=0, commit_offset=10
        )
        group = SubscriptionGroupConfig(group_name="g")
        sim.wait(sim.client.call(CreateGroup(), group.to_json()))
        sim.wait(sim.client.call(commit))
        sim.advance(10)  # the progress is saved, the messages are not
        sim.brokers["broker-a"].lose_power()
        sim.brokers["broker-a"].start()
        reader = sim.new_client("reader")
        end = sim.broker.store.max_offset("orders", 0)
        assert end < 10
        asked = QueryConsumerOffset(
            consumer_group="g", topic="orders", queue_id=0, set_zero_if_not_found=False
        )
        assert sim.wait(reader.call(asked)).header(OffsetFound).offset == end
