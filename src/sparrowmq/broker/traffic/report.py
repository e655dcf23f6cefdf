"""All limits of a broker with their figures, and its de-duplicated topics, for operators and for
monitoring."""

from typing import TYPE_CHECKING

from sparrowmq.broker.traffic.backlog import BacklogState
from sparrowmq.broker.traffic.client_quota import ClientQuota
from sparrowmq.broker.traffic.dedup import rule_of
from sparrowmq.broker.traffic.meter import Meter
from sparrowmq.protocol.limit_report import ReportedLimit, ReportedWindow
from sparrowmq.protocol.limits import Scope

if TYPE_CHECKING:
    from sparrowmq.broker.broker import Broker


async def limits_of(broker: "Broker") -> list[ReportedLimit]:
    """Every limit, in slices, including those of topics without any sends yet."""
    traffic, found = broker.traffic, []
    with broker.slices.begin() as turn:
        for topic in broker.topics:
            if topic.attributes and traffic.watches(topic):
                now_ms = broker.monotonic()
                limits = traffic.limits_of(topic, now_ms)
                if limits.meter is not None:
                    found.append(_quota(limits.meter, now_ms))
                if limits.backlog is not None:
                    found.append(_backlog(topic.topic_name, limits.backlog, now_ms))
            if turn.is_over:
                await turn.pause()
        now_ms = broker.monotonic()
        found += [_quota(each, now_ms) for each in traffic.producers.values()]
        if traffic.clients is not None:
            found.append(_clients(traffic.clients, now_ms))
        found += [_quota(each.meter, now_ms) for each in broker.watched.quotas.values()]
    return found


async def windows_of(broker: "Broker") -> list[ReportedWindow]:
    """Every de-duplicated topic, in slices, including those without any sends yet."""
    windows, found = broker.traffic.dedup.windows, []
    with broker.slices.begin() as turn:
        for topic in broker.topics:
            rule = rule_of(topic) if topic.attributes else None
            if rule is not None:
                window = windows.get(topic.topic_name)
                found.append(
                    ReportedWindow(
                        topic=topic.topic_name,
                        time_ms=rule.time_ms,
                        most=rule.ids,
                        known=None if window is None else len(window),
                        span_ms=0 if window is None else window.span_ms,
                        duplicates=0 if window is None else window.duplicates,
                        cut=0 if window is None else window.cut,
                    )
                )
            if turn.is_over:
                await turn.pause()
    return found


def _quota(meter: Meter, now_ms: int) -> ReportedLimit:
    quota, refusals = meter.buckets.quota, meter.refusals
    used_messages, used_bytes = meter.use(now_ms)
    return ReportedLimit(
        scope=meter.scope.value,
        name=meter.name,
        messages=quota.messages,
        bytes=quota.bytes,
        used_messages=used_messages,
        used_bytes=used_bytes,
        refused_last_minute=meter.refused_last_minute,
        refused=refusals.total,
        dropped=refusals.dropped,
        lasting_ms=refusals.lasting_ms(now_ms),
    )


def _clients(clients: ClientQuota, now_ms: int) -> ReportedLimit:
    used_messages, used_bytes = clients.busiest
    return ReportedLimit(
        scope=Scope.CLIENT.value,
        name="",
        messages=clients.quota.messages,
        bytes=clients.quota.bytes,
        used_messages=used_messages,
        used_bytes=used_bytes,
        refused_last_minute=clients.refused_last_minute,
        refused=clients.refusals.total,
        dropped=clients.refusals.dropped,
        lasting_ms=clients.refusals.lasting_ms(now_ms),
    )


def _backlog(topic: str, state: BacklogState, now_ms: int) -> ReportedLimit:
    return ReportedLimit(
        scope=Scope.TOPIC.value,
        name=topic,
        backlog=str(state.limit),
        refused_last_minute=state.refused_last_minute,
        refused=state.refusals.total,
        dropped=state.refusals.dropped,
        lasting_ms=now_ms - state.since_ms if state.is_over else None,
        lags=state.lags,
        uncounted=state.uncounted,
    )
