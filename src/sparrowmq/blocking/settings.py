"""The settings of the blocking consumers, for type checkers and editors.

They are the settings of the asynchronous classes without `threads` and without `client`, which
belongs to an event loop. A test compares the two, so that they cannot drift apart.
"""

from collections.abc import Sequence

from sparrowmq.client.consuming.pull_loop import FlowLimits
from sparrowmq.client.group.member_settings import OwnClientSettings, OwnClientStartSettings
from sparrowmq.client.hooks import Hooks


class PushSettings(OwnClientStartSettings, total=False):
    """Settings of a PushConsumer; `sparrowmq.PushConsumer` documents them."""

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
    """Settings of a LitePullConsumer; `sparrowmq.LitePullConsumer` documents them."""

    batch: int
    limits: FlowLimits | None
    limit_all: int
    auto_commit: bool


class ScheduledPullSettings(OwnClientSettings, total=False):
    """Settings of a ScheduledPull; `sparrowmq.ScheduledPull` documents them."""

    workers: int
    stop_within_s: float
