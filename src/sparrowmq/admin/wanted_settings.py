"""Settings that an operator wants a topic or a group to have: what would change, and what is sent.

Brokers replace all settings at once, so those that stay the same are sent too. Attributes are the
exception: only their changes are sent, each with a sign.

    wanted      {"retries": 5}   attributes {"a": "1", "b": None}
    changes     retries 16 → 5,  a None → 1,  b 7 → None
    applied     the broker's settings with retry_max_times 5, attributes {"+a": "1", "-b": ""}
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from sparrowmq.admin.values import Setting, SettingChange
from sparrowmq.client.argument_checks import check_kind
from sparrowmq.protocol.group_config import SubscriptionGroupConfig
from sparrowmq.protocol.topic_config import TopicConfig

Attributes = Mapping[str, str | None]
"""Attributes to set; None removes one."""

C = TypeVar("C", TopicConfig, SubscriptionGroupConfig)


@dataclass(frozen=True, slots=True)
class WantedSettings:
    """Values by the names that operators use; None leaves a setting as it is. `fields` are the
    names that brokers use."""

    fields: Mapping[str, str]
    values: Mapping[str, Setting]
    attributes: Attributes | None

    def __post_init__(self) -> None:
        if self.attributes is not None:
            check_kind("attributes", self.attributes, Mapping)

    def check_new(self, kind: str) -> None:
        """Raises ValueError for settings that a new topic or group cannot have."""
        if None in (self.attributes or {}).values():
            raise ValueError(
                f"an attribute of a new {kind} needs a value; sparrowmq {kind} update removes one"
            )

    def with_defaults(self, defaults: Mapping[str, Setting]) -> "WantedSettings":
        """The same, with these values for what is not given."""
        given = {name: value for name, value in self.values.items() if value is not None}
        return WantedSettings(self.fields, {**defaults, **given}, self.attributes)

    def changes(
        self, config: TopicConfig | SubscriptionGroupConfig, broker: str
    ) -> list[SettingChange]:
        """How this differs from the broker's settings."""
        pairs: list[tuple[str, Setting, Setting]] = [
            (name, getattr(config, self.fields[name]), value)
            for name, value in self.values.items()
            if value is not None
        ]
        pairs += [
            (name, config.attributes.get(name), value)
            for name, value in (self.attributes or {}).items()
        ]
        return [
            SettingChange(broker, setting, before, after)
            for setting, before, after in pairs
            if before != after
        ]

    def applied(self, config: C) -> C:
        """The broker's settings with these values; attributes are the signed changes."""
        given = {
            self.fields[name]: value for name, value in self.values.items() if value is not None
        }
        attributes = {
            f"-{name}" if value is None else f"+{name}": value or ""
            for name, value in (self.attributes or {}).items()
            if config.attributes.get(name) != value
        }
        return msgspec.structs.replace(config, **given, attributes=attributes)
