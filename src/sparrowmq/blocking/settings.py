"""The settings of the blocking consumers, for type checkers and editors.

They are those of the asynchronous classes without `client`, which belongs to an event loop, and
`threads`. A test compares both, so that they cannot drift apart.
"""

from collections.abc import Sequence

from sparrowmq.client.consuming.pull_loop import FlowLimits
from sparrowmq.client.group.member_settings import OwnClientSettings, OwnClientStartSettings
from sparrowmq.client.hooks import Hooks


class PushSettings(OwnClientStartSettings, total=False):
    """Of a PushConsumer; `sparrowmq.PushConsumer` documents them."""

    orderly: bool
    batch: int
    workers: int
    pull_batch: int
    limits: FlowLimits | None
    max_reconsume_times: int
    consume_timeout_s: float
    suspend_s: float
    stop_within_s: float
    hooks: Sequence[Hooks]
    trace: bool


class LitePullSettings(OwnClientStartSettings, total=False):
    """Of a LitePullConsumer; `sparrowmq.LitePullConsumer` documents them."""

    batch: int
    limits: FlowLimits | None
    limit_all: int
    auto_commit: bool


class ScheduledPullSettings(OwnClientSettings, total=False):
    """Of a ScheduledPull; `sparrowmq.ScheduledPull` documents them."""

    workers: int
    stop_within_s: float
