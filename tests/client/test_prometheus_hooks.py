"""Metrics of programs that send and consume, in a registry of prometheus-client."""

import sys
from collections.abc import Sequence

import pytest
from prometheus_client import CollectorRegistry

from sparrowmq import Handling, Message, PrometheusHooks, SendFailed
from sparrowmq.client.hooks import Sending

MESSAGES = [Message("orders", b"a"), Message("orders", b"b")]


def sending(error: BaseException | None = None) -> Sending:
    return Sending("orders-svc", MESSAGES[:1], error=error, elapsed_s=0.012)


def handling(failed: Sequence[Message] = ()) -> Handling:
    return Handling("billing", MESSAGES, failed=failed, elapsed_s=0.5)  # type: ignore[arg-type]


def test_sends_and_handlers_are_timed_and_messages_counted_by_their_outcome() -> None:
    registry = CollectorRegistry()
    hooks = PrometheusHooks(registry)
    hooks.after_send(sending())
    hooks.after_send(sending(SendFailed("orders", [("broker-a", "no answer")], 3.0)))
    for call in (handling(), handling(MESSAGES[1:])):
        hooks.before_handling(call)
        hooks.after_handling(call)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    sent = "rocketmq_send_cost_time"
    for status in ("success", "failure"):
        labels = {"topic": "orders", "invocation_status": status}
        assert value(f"{sent}_count", **labels) == 1
        assert value(f"{sent}_bucket", le="20.0", **labels) == 1
        assert value(f"{sent}_bucket", le="10.0", **labels) == 0
    handled = {"topic": "orders", "consumer_group": "billing"}
    name = "sparrowmq_client_messages_handled_total"
    assert value(name, invocation_status="success", **handled) == 3
    assert value(name, invocation_status="failure", **handled) == 1
    assert value("rocketmq_process_time_sum", invocation_status="failure", **handled) == 500
    assert value("sparrowmq_client_handlers_running", consumer_group="billing") == 0


def test_a_registry_takes_one_of_them() -> None:
    registry = CollectorRegistry()
    PrometheusHooks(registry)
    with pytest.raises(ValueError, match="Duplicated"):
        PrometheusHooks(registry)


def test_without_prometheus_client_the_error_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ImportError, match=r"pip install 'sparrowmq\[prometheus\]'"):
        PrometheusHooks()
