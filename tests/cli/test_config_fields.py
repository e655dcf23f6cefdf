"""Fields of configurations: each declares its meaning and its bounds, and an error carries both."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.broker.config import BrokerConfig
from sparrowmq.client.config import ClientConfig
from sparrowmq.config_fields import (
    Allowed,
    ConfigError,
    at_least,
    between,
    check_fields,
    meaning_of,
    more_than,
    not_blank,
    required,
    setting,
)
from sparrowmq.nameserver.config import NameServerConfig
from sparrowmq.net.endpoint import Limits
from sparrowmq.store.config import StoreConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    folder: Path = field(metadata=required("Where it is."))
    hour: int = setting(4, "Hour of the day.", between(0, 23))
    name: str = setting("a", "What it is called.", not_blank())
    delays_ms: tuple[int, ...] = setting((1,), "Delays.")
    note: str | None = setting(None, "Anything.")

    def __post_init__(self) -> None:
        check_fields(self)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"hour": 24}, "hour is 24, must be 0 to 23"),
        ({"hour": "4"}, "hour is '4', must be a whole number"),
        ({"hour": True}, "hour is True, must be a whole number"),
        ({"name": " "}, "name is ' ', must not be empty"),
        ({"folder": "d"}, "folder is 'd', must be a Path"),
        ({"delays_ms": (1, "2")}, "delays_ms is (1, '2'), must be a tuple of whole numbers"),
        ({"note": 1}, "note is 1, must be a text or None"),
        # All faults; types come first
        (
            {"hour": 24, "note": 1},
            "note is 1, must be a text or None; hour is 24, must be 0 to 23",
        ),
        # A rule would compare what cannot be compared
        ({"hour": "24"}, "hour is '24', must be a whole number"),
    ],
)
def test_a_bad_value_is_refused_with_what_is_allowed(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Sample(**{"folder": Path("d"), **given})
    assert str(refused.value) == text


def test_an_error_carries_field_value_and_bounds() -> None:
    with pytest.raises(ConfigError) as refused:
        Sample(folder=Path("d"), hour=24)
    error = refused.value
    assert (error.fields, error.values, error.allowed.bounds) == (("hour",), (24,), (0, 23))
    assert error.allowed.text(lambda hour: f"{hour}:00") == "must be 0:00 to 23:00"


def test_an_error_carries_all_others_of_its_configuration() -> None:
    with pytest.raises(ConfigError) as refused:
        Sample(folder=Path("d"), hour=24, name="")
    assert [each.fields for each in (refused.value, *refused.value.also)] == [("hour",), ("name",)]


def test_an_error_about_several_fields_names_them_in_their_order() -> None:
    error = ConfigError(("least", "most"), (3, 2), "must not fall")
    assert (error.fields, error.values) == (("least", "most"), (3, 2))
    assert str(error) == "least and most must not fall, are 3, 2"


@pytest.mark.parametrize(
    ("allowed", "good", "bad", "text"),
    [
        (between(1, 3), [1, 3], [0, 4], "must be 1 to 3"),
        (between(1, 3, "why not"), [2], [0], "must be 1 to 3: why not"),
        (at_least(1), [1, 2], [0], "must be 1 or more"),
        (more_than(0), [0.1], [0, -1], "must be more than 0"),
        (not_blank(), ["x"], ["", " "], "must not be empty"),
    ],
)
def test_rules(allowed: Allowed, good: list[Any], bad: list[Any], text: str) -> None:
    assert all(map(allowed.accepts, good))
    assert not any(map(allowed.accepts, bad))
    assert allowed.text() == text


CONFIGS: list[type[Any]] = [BrokerConfig, StoreConfig, NameServerConfig, ClientConfig, Limits]


@pytest.mark.parametrize("config", CONFIGS)
def test_every_field_documents_its_meaning(config: type[Any]) -> None:
    names = [each.name for each in fields(config) if each.name not in ("limits", "store")]
    assert all(meaning_of(config, name).endswith(".") for name in names)
