"""Clocks that were set back, by the report's number."""

from sparrowmq.client.subscriptions import Subscriptions
from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.members import TOPIC, Member, create_topic, send


def test_report_6679_a_subscription_changed_after_the_clock_was_set_back_has_a_newer_version() -> (
    None
):
    subscriptions = Subscriptions({"orders": "a"})
    versions = []
    for now_ms in (5_000, 1_000, 1_000, 0, 5_001):
        subscriptions.renew(["orders"], now_ms)
        versions.append(subscriptions.all()[0].sub_version)
        subscriptions.add("orders", f"tag{now_ms}", now_ms)
        versions.append(subscriptions.all()[0].sub_version)
    assert versions == sorted(set(versions))


def test_report_6679_a_member_whose_clock_was_set_back_gets_what_it_subscribes_to_now() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, subscriptions={TOPIC: "a"})
        sim.advance(2)
        client = member.consumer.client
        right = client.clock
        client.clock = lambda: right() - 3_600_000
        member.consumer.subscriptions.add(TOPIC, "b", client.clock())
        sim.run(client.heartbeat_everywhere(), on=member.host)
        sim.advance(20)  # the pull that waits by the old subscription is over
        send(sim, b"old", TAGS="a")
        send(sim, b"new", TAGS="b")
        sim.advance(20)
        assert member.got == [b"new"]
