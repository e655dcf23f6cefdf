"""Pulls that a slave does not serve: it holds them for a moment and sends them to the master.

A slave's copy of the log may end before the master's, and begin later. So an offset that is out of
its range, or that it cannot judge, is not corrected there as it is on a master: the client would
skip messages, or get them again. The pull is answered like one that finds nothing, with the offset
that it came with and the master as the broker to ask next. A master that waits for its slaves may
have lost messages, and does the same:

    code             Java and Go resume    therefore
    NOT_FOUND        at the same offset    answered
    RETRY            at the same offset    same for them, but a Python application that pulls
                                           by itself would read it as "nothing matches"
    OFFSET_MOVED     elsewhere             never
"""

import asyncio

from sparrowmq.broker.broker import Broker
from sparrowmq.net.routes import Handled, Reply, Request
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.pull import Pulled, PulledInEpoch, PullMessage
from sparrowmq.protocol.sys_flag import PULL_SUSPEND

HOLD_S = 1.0
"""How long such a pull is held. Clients pull again at once, and one whose route does not name the
master yet comes here again."""


def held_back(broker: Broker, request: Request[PullMessage], why: str, longest_s: float) -> Handled:
    """Answer that nothing was found, after a moment if the client lets pulls wait."""
    if not request.header.sys_flag & PULL_SUSPEND:
        return not_moved(broker, request, why)
    return _hold(broker, request, why, min(HOLD_S, longest_s))


async def _hold(broker: Broker, request: Request[PullMessage], why: str, wait_s: float) -> Reply:
    await asyncio.sleep(wait_s)
    return not_moved(broker, request, why)


def not_moved(broker: Broker, request: Request[PullMessage], why: str) -> Reply:
    """Answer that nothing was found, with the offset that the pull came with."""
    header, held_reads = request.header, broker.held_reads
    assert held_reads is not None
    low, high = broker.store.visible_range(header.topic, header.queue_id)
    answer = Pulled(
        suggest_which_broker_id=held_reads.master_or_self,
        next_begin_offset=header.queue_offset,
        min_offset=low,
        max_offset=high,
    )
    if header.epoch is not None:
        # Repeating an offset does not make it any more certain.
        answer = PulledInEpoch(
            suggest_which_broker_id=answer.suggest_which_broker_id,
            next_begin_offset=header.queue_offset,
            min_offset=low,
            max_offset=high,
            epoch=header.epoch,
        )
    return Reply(answer, code=ResponseCode.PULL_NOT_FOUND, remark=why)
