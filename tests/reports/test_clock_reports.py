"""Clocks that were set back, by the report's number."""

from sparrowmq.client.subscriptions import Subscriptions


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
