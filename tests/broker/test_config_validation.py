"""A broker's settings are validated when built: the error names the value and the allowed ones."""

from pathlib import Path
from typing import Any

import pytest

from sparrowmq.broker.config import BrokerConfig, Flush
from sparrowmq.config_fields import ConfigError
from sparrowmq.testing import cluster


@pytest.mark.parametrize(
    ("name", "given", "complaint"),
    [
        ("flush", "wrong", "flush is 'wrong', must be Flush.ASYNC or Flush.SYNC"),
        ("flush", "SYNC_FLUSH", "flush is 'SYNC_FLUSH', must be Flush.ASYNC or Flush.SYNC"),
        ("data_dir", "folder", "data_dir is 'folder', must be a Path"),
        ("port", "10911", "port is '10911', must be a whole number"),
        ("port", 10911.0, "port is 10911.0, must be a whole number"),
        ("max_topics", True, "max_topics is True, must be a whole number"),
        ("vip_alias", 1, "vip_alias is 1, must be True or False"),
        ("long_poll_s", "30", "long_poll_s is '30', must be a number"),
        ("long_poll_s", True, "long_poll_s is True, must be a number"),
        ("long_poll_s", float("nan"), "long_poll_s is nan, must be a number"),
        ("client_timeout_s", float("inf"), "client_timeout_s is inf, must be a number"),
        ("broker_name", None, "broker_name is None, must be a text"),
        ("name_servers", "a:9876", "name_servers is 'a:9876', must be a tuple of texts"),
        ("name_servers", (9876,), r"name_servers is \(9876,\), must be a tuple of texts"),
        ("limits", None, "limits is None, must be a Limits"),
        ("port", -1, "port is -1, must be 0 to 65535"),
        ("port", 65_536, "port is 65536, must be 0 to 65535"),
        ("port", 2, "port is 2, must be 0, or 3 to 65535"),
        ("ha_port", 65_536, "ha_port is 65536, must be 0 to 65535"),
        ("port", 65_535, "port is 65535, must be less than 65535: port .* is used too"),
        ("ha_port", 10_909, "ha_port is 10909, must not be a port that clients use"),
        ("ha_port", 10_911, "ha_port is 10911, must not be a port that clients use"),
        ("broker_id", 1, "a slave finds its master through a name server"),
        ("min_in_sync_replicas", 2, "must not be more than in-sync-replicas"),
        ("default_queues", 0, "default_queues is 0, must be 1 or more"),
        ("default_queues", 4_097, "must not fall, are 4097, 4096"),
        ("cluster_name", " ", "cluster_name is ' ', must not be empty"),
        ("busy_lag_s", 0, "busy_lag_s is 0, must be more than 0"),
        (
            "lock_timeout_s",
            59,
            "lock_timeout_s is 59, must be 60.0 or more: members rely on a lock",
        ),
        ("max_message_bytes", 0, "max_message_bytes is 0, must be more than 0"),
        ("long_poll_s", -0.1, "long_poll_s is -0.1, must be 0 or more"),
        (
            "name_servers",
            ("nowhere",),
            r"name_servers is \('nowhere',\), .* not host:port, such as 127.0.0.1:9876",
        ),
    ],
)
def test_a_setting_that_cannot_be_is_refused(name: str, given: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        BrokerConfig(**{"data_dir": Path("d"), name: given})


@pytest.mark.parametrize(
    ("name", "given"),
    [
        *(("port", 0), ("port", 3), ("port", 65_534), ("ha_port", 0), ("default_queues", 1)),
        *(("default_queues", 4_096), ("long_poll_s", 0), ("session_timeout_s", 0)),
        *(("flush", Flush.SYNC), ("max_pull_count", 1), ("name_servers", ("[::1]:9876",))),
    ],
)
def test_the_smallest_and_largest_allowed_values_are_accepted(name: str, given: Any) -> None:
    assert getattr(BrokerConfig(**{"data_dir": Path("d"), name: given}), name) == given


def test_ports_1_and_2_are_free_without_an_alias_two_below_them() -> None:
    assert BrokerConfig(data_dir=Path("d"), port=2, vip_alias=False).port == 2


def test_a_cluster_for_tests_refuses_a_flush_mode_that_does_not_exist() -> None:
    with (
        pytest.raises(ConfigError, match=r"must be Flush\.ASYNC or Flush\.SYNC"),
        cluster(flush="wrong"),
    ):
        pass
