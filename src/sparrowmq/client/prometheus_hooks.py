"""Metrics of a program that sends and consumes; needs `sparrowmq[prometheus]`.

They go to a prometheus-client registry, which the program serves along with its other metrics. The
two histograms have the same names as in RocketMQ 5's own clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparrowmq.client.hooks import Handling, Hooks, Sending
from sparrowmq.protocol.message import Message
from sparrowmq.protocol.message_ext import MessageExt

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_NEEDED = "PrometheusHooks needs prometheus-client: pip install 'sparrowmq[prometheus]'"
_SEND_MS = (1, 5, 10, 20, 50, 200, 500)
_PROCESS_MS = (1, 5, 10, 100, 1000, 10000, 60000)
"""The buckets of RocketMQ's clients."""


class PrometheusHooks(Hooks):
    """Pass one object to all producers and consumers of a program, or one per registry."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Uses the default registry unless one is given. Raises ImportError if prometheus-client is
        not installed, ValueError for a second object with the same registry."""
        try:
            from prometheus_client import REGISTRY, Counter, Gauge, Histogram
        except ImportError as error:
            raise ImportError(_NEEDED) from error
        used = REGISTRY if registry is None else registry
        self._sends = Histogram(
            "rocketmq_send_cost_time",
            "Milliseconds that a send took, with all attempts.",
            ("topic", "invocation_status"),
            buckets=_SEND_MS,
            registry=used,
        )
        self._diverted = Counter(
            "sparrowmq_client_messages_diverted",
            "Messages that a limit of their topic refused and another topic took.",
            ("topic", "diverted_to"),
            registry=used,
        )
        self._handling = Histogram(
            "rocketmq_process_time",
            "Milliseconds that a call of a handler took.",
            ("topic", "consumer_group", "invocation_status"),
            buckets=_PROCESS_MS,
            registry=used,
        )
        self._handled = Counter(
            "sparrowmq_client_messages_handled",
            "Messages that a handler was given.",
            ("topic", "consumer_group", "invocation_status"),
            registry=used,
        )
        self._running = Gauge(
            "sparrowmq_client_handlers_running",
            "Calls of the handler that have not ended.",
            ("consumer_group",),
            registry=used,
        )

    def after_send(self, sending: Sending) -> None:
        """Record how long the send took, and what was diverted to another topic."""
        status = _status(sending.error is None)
        self._sends.labels(_topic(sending.messages), status).observe(sending.elapsed_s * 1000)
        for result in sending.results:
            if result.diverted_from:
                count = result.msg_id.count(",") + 1
                self._diverted.labels(result.diverted_from, result.queue.topic).inc(count)

    def before_handling(self, handling: Handling) -> None:
        """Count one more running handler call."""
        self._running.labels(handling.group).inc()

    def after_handling(self, handling: Handling) -> None:
        """Record how long the call took, and the outcome of the messages."""
        topic, group = _topic(handling.messages), handling.group
        failed, total = len(handling.failed), len(handling.messages)
        self._running.labels(group).dec()
        self._handling.labels(topic, group, _status(not failed)).observe(handling.elapsed_s * 1000)
        for count, is_ok in ((total - failed, True), (failed, False)):
            if count:
                self._handled.labels(topic, group, _status(is_ok)).inc(count)


def _topic(messages: Sequence[Message | MessageExt]) -> str:
    first = messages[0]
    return first.original_topic if isinstance(first, MessageExt) else first.topic


def _status(is_ok: bool) -> str:
    return "success" if is_ok else "failure"
