"""The settings of a name server, and which of them may be changed while it runs."""

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from sparrowmq.config_fields import ConfigError, between, check_fields, not_blank, setting
from sparrowmq.net.endpoint import Limits

METRICS_PORT = 5558
"""The port after a broker's, which may run on the same machine."""
NO_METRICS = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerConfig:
    """Validated when built; `with_changes` gives a changed copy."""

    listen_host: str = setting(
        "127.0.0.1",
        "Address to listen on. Loopback by default: there is no authentication yet.",
        not_blank(),
    )
    listen_port: int = setting(
        9876, "The name server's port; 0 takes a free one.", between(0, 65_535)
    )
    metrics_port: int = setting(
        METRICS_PORT,
        "Port of /metrics, /healthz and /readyz; 0 takes a free one, -1 switches them off. A taken"
        " one gives way to a free one, and where the name server's own port is 0 the default does.",
        between(NO_METRICS, 65_535),
    )
    metrics_listen_host: str = setting(
        "127.0.0.1",
        "Where these pages are served. Loopback by default: everybody who reaches them may read.",
        not_blank(),
    )
    kv_config_path: Path | None = setting(
        None,
        "File of the key-value configuration, kvConfig.json in Apache's name server. Without one"
        " it is kept in memory only.",
    )
    broker_timeout_s: float = setting(
        120.0,
        "A broker silent for this long is dropped, unless it asks for a limit of its own. Shorter"
        " notices vanished hosts sooner and forgives fewer lost registrations (every 30 s).",
        between(1, 86_400),
    )
    scan_interval_s: float = setting(
        5.0, "How often the name server looks for silent brokers.", between(0.1, 3_600)
    )
    order_message_enable: bool = setting(
        False,
        "Whether a route carries the topic's order configuration from the key-value namespace"
        " ORDER_TOPIC_CONFIG. A topic with one keeps its queue list even when a broker is gone.",
    )
    return_order_topic_config_to_broker: bool = setting(
        True, "Whether brokers get that namespace in the answer to their registration."
    )
    support_acting_master: bool = setting(
        False,
        "Whether a route shows the slave with the smallest id as master while there is none, for"
        " brokers that registered with enableActingMaster. It serves reads and locks, never"
        " writes.",
    )
    delete_topic_with_broker_registration: bool = setting(
        False,
        "Whether topics that a registration no longer names are forgotten. Only safe with brokers"
        " that always register everything.",
    )
    enable_all_topic_list: bool = setting(
        True, "Whether clients may ask for the names of all topics."
    )
    enable_topic_list: bool = setting(
        True, "Whether clients may ask for topic names by cluster or unit."
    )
    need_wait_for_service: bool = setting(
        False, "Whether routes are refused right after the start, when brokers may be missing."
    )
    wait_seconds_for_service: int = setting(
        45, "Seconds after the start in which routes are refused, if they are.", between(0, 3_600)
    )
    max_brokers: int = setting(
        2_000, "Registrations beyond this many brokers are refused.", between(1, 100_000)
    )
    max_topics_per_broker: int = setting(
        50_000, "Registrations with more topics are refused.", between(1, 1_000_000)
    )
    max_queues_per_topic: int = setting(
        65_536,
        "Registrations with more queues on one broker are refused: clients build a list of them.",
        between(1, 1_000_000),
    )
    route_cache_bytes: int = setting(
        64 * 1024 * 1024,
        "Memory for encoded route answers. 0 encodes each answer again.",
        between(0, 1 << 40),
    )
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def wanted_metrics_port(self) -> int | None:
        """The port to try for metrics; None if they are switched off."""
        if self.metrics_port == NO_METRICS:
            return None
        is_anywhere = self.listen_port == 0 and self.metrics_port == METRICS_PORT
        return 0 if is_anywhere else self.metrics_port

    def with_changes(self, changes: dict[str, str]) -> Self:
        """A copy with some of the `CHANGEABLE` settings read from text, by their wire names.

        Raises ConfigError naming the setting.
        """
        return replace(self, **{CHANGEABLE[name]: _read(name, changes[name]) for name in changes})

    def to_properties(self) -> str:
        """`name=value` lines for operators; an empty path means memory only."""
        shown = {**_READ_ONLY, **CHANGEABLE}
        lines = sorted(f"{name}={_write(name, getattr(self, shown[name]))}" for name in shown)
        return "".join(f"{line}\n" for line in lines)


_READ_ONLY = {
    "bindAddress": "listen_host",
    "kvConfigPath": "kv_config_path",
    "listenPort": "listen_port",
}
CHANGEABLE = {
    "brokerTimeoutMillis": "broker_timeout_s",
    "deleteTopicWithBrokerRegistration": "delete_topic_with_broker_registration",
    "enableAllTopicList": "enable_all_topic_list",
    "enableTopicList": "enable_topic_list",
    "needWaitForService": "need_wait_for_service",
    "orderMessageEnable": "order_message_enable",
    "returnOrderTopicConfigToBroker": "return_order_topic_config_to_broker",
    "scanNotActiveBrokerInterval": "scan_interval_s",
    "supportActingMaster": "support_acting_master",
    "waitSecondsForService": "wait_seconds_for_service",
}
"""Wire name to field of the settings that may change at run time: never a path or an address."""

_IN_MILLISECONDS = {"brokerTimeoutMillis", "scanNotActiveBrokerInterval"}
_TYPES = {each.name: each.type for each in fields(NameServerConfig)}
_WORDS = {"true": True, "false": False}


def _read(name: str, text: str) -> Any:
    if _TYPES[CHANGEABLE[name]] is bool:
        if text.lower() not in _WORDS:
            raise ConfigError(name, text[:40], "must be true or false")
        return _WORDS[text.lower()]
    if not text.isdecimal() or len(text) > 12:
        raise ConfigError(name, text[:40], "must be a whole number")
    return int(text) / 1000 if name in _IN_MILLISECONDS else int(text)


def _write(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return ""
    return str(round(value * 1000)) if name in _IN_MILLISECONDS else str(value)
