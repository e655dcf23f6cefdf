"""Which way a push consumer's messages take: side by side, or one after the other."""

from collections.abc import Callable

from sparrowmq.client.consuming.giving_back import GivingBack
from sparrowmq.client.consuming.handling import Handling
from sparrowmq.client.consuming.orderly import UNLIMITED, OrderlyConsuming
from sparrowmq.client.consuming.pool import Consuming
from sparrowmq.client.group.held_queue import HeldQueue
from sparrowmq.client.group.membership import Membership

_MAX_RECONSUME_TIMES = 16


def consuming(
    handling: Handling,
    member: Membership,
    *,
    batch: int,
    max_reconsume_times: int,
    timeout_s: float,
    suspend_s: float,
    progressed: Callable[[HeldQueue], None],
) -> Consuming | OrderlyConsuming:
    """Workers for a member, as its settings say. `max_reconsume_times` -1 means 16, and no limit
    when orderly."""
    settings, client = member.settings, member.client
    if settings.is_orderly:
        return OrderlyConsuming(
            handling,
            GivingBack(client, settings.group, max(0, max_reconsume_times), client.log),
            batch=batch,
            max_reconsume_times=max_reconsume_times,
            suspend_s=suspend_s,
            has_lock=member.has_lock,
            progressed=progressed,
            log=client.log,
        )
    is_default = max_reconsume_times == UNLIMITED
    times = _MAX_RECONSUME_TIMES if is_default else max_reconsume_times
    giving_back = GivingBack(client, settings.group, times, client.log)
    return Consuming(
        handling,
        None if settings.is_broadcasting else giving_back,
        batch=batch,
        timeout_s=timeout_s,
        held=member.held.values,
        may_work=member.may_work,
        progressed=progressed,
        log=client.log,
    )
