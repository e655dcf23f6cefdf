"""The settings of a name server, and which of them may be changed while it runs."""

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from sparrowmq.net.endpoint import Limits
from sparrowmq.net.kinds import wrong_kind


class ConfigError(ValueError):
    """A setting has a value that cannot be; the text names it and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerConfig:
    """Validated when built; `with_changes` gives a changed copy."""

    listen_host: str = "127.0.0.1"
    """Where to listen. Loopback by default: there is no authentication yet."""
    listen_port: int = 9876
    """RocketMQ's own port; 0 takes a free one."""
    kv_config_path: Path | None = None
    """The file of the key-value configuration, kvConfig.json in Apache's name server.
    None keeps it in memory only."""
    broker_timeout_s: float = 120.0
    """A broker that is silent this long is dropped, unless it asks for a limit of its own.
    Shorter notices vanished hosts sooner and forgives fewer lost registrations (every 30 s)."""
    scan_interval_s: float = 5.0
    """How often silent brokers are looked for."""
    order_message_enable: bool = False
    """Whether a route carries the topic's order configuration from the key-value namespace
    ORDER_TOPIC_CONFIG. A topic with one keeps its queue list even when a broker is gone."""
    return_order_topic_config_to_broker: bool = True
    """Whether the answer to a registration carries that namespace."""
    support_acting_master: bool = False
    """Whether a route shows the slave with the smallest id as master while there is none, for
    brokers that registered with enableActingMaster. It serves reads and locks, never writes."""
    delete_topic_with_broker_registration: bool = False
    """Whether topics that a registration no longer names are forgotten. Only safe with brokers
    that always register everything."""
    enable_all_topic_list: bool = True
    """Whether clients may ask for the names of all topics."""
    enable_topic_list: bool = True
    """Whether clients may ask for topic names by cluster or unit."""
    need_wait_for_service: bool = False
    """Whether routes are refused right after the start, when brokers may still be missing."""
    wait_seconds_for_service: int = 45
    """For how long routes are refused, if need_wait_for_service is set."""
    max_brokers: int = 2_000
    """Registrations beyond this many brokers are refused."""
    max_topics_per_broker: int = 50_000
    """Registrations with more topics are refused."""
    max_queues_per_topic: int = 65_536
    """Registrations with more queues on one broker are refused: clients build a list of them."""
    route_cache_bytes: int = 64 * 1024 * 1024
    """Memory for encoded route answers. 0 encodes each answer anew."""
    limits: Limits = field(default_factory=Limits)
    """Bounds on what one connection may cost."""

    def __post_init__(self) -> None:
        if complaint := wrong_kind(self):
            raise ConfigError(complaint)
        if not self.listen_host.strip():
            raise ConfigError(f"listen_host is {self.listen_host!r}, must not be empty")
        _check("listen_port", self.listen_port, 0, 65_535)
        _check("broker_timeout_s", self.broker_timeout_s, 1, 86_400)
        _check("scan_interval_s", self.scan_interval_s, 0.1, 3_600)
        _check("wait_seconds_for_service", self.wait_seconds_for_service, 0, 3_600)
        _check("max_brokers", self.max_brokers, 1, 100_000)
        _check("max_topics_per_broker", self.max_topics_per_broker, 1, 1_000_000)
        _check("max_queues_per_topic", self.max_queues_per_topic, 1, 1_000_000)
        _check("route_cache_bytes", self.route_cache_bytes, 0, 1 << 40)

    def with_changes(self, changes: dict[str, str]) -> Self:
        """A copy with some of the `CHANGEABLE` settings read from text, by their wire names.

        Raises ConfigError that names the setting.
        """
        return replace(self, **{CHANGEABLE[name]: _read(name, changes[name]) for name in changes})

    def to_properties(self) -> str:
        """`name=value` lines for operators; a path that is empty stands for memory only."""
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
"""Wire name to field of what may be changed while the server runs: never a path or an address."""

_IN_MILLISECONDS = {"brokerTimeoutMillis", "scanNotActiveBrokerInterval"}
_TYPES = {each.name: each.type for each in fields(NameServerConfig)}
_WORDS = {"true": True, "false": False}


def _read(name: str, text: str) -> Any:
    if _TYPES[CHANGEABLE[name]] is bool:
        if text.lower() not in _WORDS:
            raise ConfigError(f"{name} is {text[:40]!r}, must be true or false")
        return _WORDS[text.lower()]
    if not text.isdecimal() or len(text) > 12:
        raise ConfigError(f"{name} is {text[:40]!r}, must be a whole number")
    return int(text) / 1000 if name in _IN_MILLISECONDS else int(text)


def _write(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return ""
    return str(round(value * 1000)) if name in _IN_MILLISECONDS else str(value)


def _check(name: str, value: float, lowest: float, highest: float) -> None:
    if not lowest <= value <= highest:
        raise ConfigError(f"{name} is {value}, must be {lowest} to {highest}")
