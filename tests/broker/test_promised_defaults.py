"""Defaults that docs/behaviour.md promises and that other tests set to something handier."""

from pathlib import Path

from sparrowmq.broker.config import BrokerConfig, Flush

MIB = 1024 * 1024


def test_the_limits_per_connection_are_as_promised() -> None:
    limits = BrokerConfig(data_dir=Path("d")).limits
    assert (limits.max_frame_bytes, limits.max_header_bytes) == (16 * MIB, MIB)
    assert (limits.first_frame_s, limits.whole_frame_s, limits.idle_s) == (10, 120, 120)
    assert (limits.max_unfinished_bytes, limits.max_unread_bytes) == (256 * MIB, 256 * MIB)
    assert (limits.max_connections, limits.max_connections_per_address) == (10_000, 500)


def test_the_limits_of_a_broker_are_as_promised() -> None:
    config = BrokerConfig(data_dir=Path("d"))
    assert (config.max_message_bytes, config.max_properties_bytes) == (4 * MIB, 32_767)
    assert (config.max_topics, config.max_groups) == (10_000, 10_000)
    assert (config.max_queues_per_topic, config.default_queues) == (4_096, 8)
    assert config.max_waiting_pulls == 100_000
    assert (config.max_pull_count, config.max_asked_pull_bytes) == (4_096, 4 * MIB)


def test_the_timeouts_of_a_broker_are_as_promised() -> None:
    config = BrokerConfig(data_dir=Path("d"))
    assert (config.register_interval_s, config.client_timeout_s) == (30, 120)
    assert (config.session_timeout_s, config.lock_timeout_s) == (4, 60)
    assert (config.flush, config.flush_interval_s, config.flush_timeout_s) == (Flush.ASYNC, 0.5, 5)
    assert (config.offsets_journal_s, config.busy_lag_s) == (1, 0.2)
    assert config.max_timer_delay_s == 3 * 24 * 3600
    checks = (config.transaction_timeout_s, config.transaction_check_interval_s)
    assert (*checks, config.transaction_check_max) == (6, 30, 15)


def test_files_and_their_retention_are_as_promised() -> None:
    store = BrokerConfig(data_dir=Path("d")).store
    assert (store.log_file_size, store.queue_file_units) == (1024 * MIB, 300_000)
    assert (store.index_slots, store.index_entries) == (5_000_000, 20_000_000)
    assert (store.retention_ms, store.deletion_hour) == (72 * 3600 * 1000, 4)
    assert (store.clean_ratio, store.force_clean_ratio, store.refuse_ratio) == (0.75, 0.85, 0.9)
    assert (store.checkpoint_interval_ms, store.checkpoint_bytes) == (5_000, 32 * MIB)
