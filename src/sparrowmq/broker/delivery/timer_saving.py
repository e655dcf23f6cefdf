"""Pending timers on their way to disk: runs, how far delivery has come, and what Apache needs."""

import asyncio

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.delivery import timer_apache
from sparrowmq.broker.delivery.timer_entries import time_of
from sparrowmq.broker.delivery.timer_plans import Spill
from sparrowmq.broker.delivery.timer_runs import Run, RunList, RunRange
from sparrowmq.protocol.names import TIMER_TOPIC
from sparrowmq.store.errors import DiskFull


async def spill(broker: Broker) -> None:
    """Write a run when there is enough in memory. Raises DiskFull, having lost nothing."""
    timers = broker.delivery.timers
    async with timers.list_lock:
        run = timers.begin_spill(*_ends(broker))
        if run is None:
            return
        runs = RunList(run.span.end, list(timers.list.runs))
        try:
            await _write(broker, run, runs)
        except DiskFull:
            timers.take_back(run)
            raise
        timers.spilled(runs)
        if not run.is_empty:
            timers.take_up(_opened(broker, run))


async def _write(broker: Broker, run: Spill, runs: RunList) -> None:
    files, workers = broker.delivery.timers.files, broker.workers
    if not run.is_empty:
        runs.runs.append(run.span)
        await workers.run(files.write, run.span, run.delivered + run.entries)
    await workers.run(files.save_list, runs)


def _opened(broker: Broker, written: Spill) -> Run:
    run = broker.delivery.timers.files.open(written.span, check=False)
    assert run is not None, "just written"
    run.skip(len(written.delivered))
    return run


async def save_progress(broker: Broker) -> None:
    """Save how far delivery has come, as soon as what was delivered is durable."""
    while True:
        await asyncio.sleep(broker.config.offsets_journal_s / 2)
        try:
            async with broker.steps:
                await save_mark(broker)
        except DiskFull as error:
            broker.log.warning("the progress of delivery times is not saved: %s", error)


async def save_mark(broker: Broker) -> None:
    """Save what is durable by now. Raises DiskFull, having lost nothing."""
    timers = broker.delivery.timers
    noted = timers.progress_to_save(*_ends(broker))
    if noted is None:
        return
    await broker.workers.run(timers.check.save, noted.marks, noted.first_pending)
    timers.saved()
    if noted.finished:
        await _forget(broker, noted.finished)


async def _forget(broker: Broker, finished: list[RunRange]) -> None:
    timers, workers = broker.delivery.timers, broker.workers
    async with timers.list_lock:
        left = timers.unfinished_runs(finished)
        await workers.run(timers.files.save_list, left)
        timers.forget(finished, left)
        # Inside: the next run may begin where one of these did, and has its file's name then.
        for span in finished:
            await workers.run(timers.files.remove, span)


def _ends(broker: Broker) -> tuple[int, int, int]:
    """Where the timer queue and the log end, and up to where the log is durable."""
    store = broker.store
    return store.max_offset(TIMER_TOPIC, 0), store.max_log_offset, store.durable_log_offset


async def leave_to_apache(broker: Broker) -> None:
    """Let Apache's broker go on without delivering anything again. Everything must be saved."""
    timers, store = broker.delivery.timers, broker.store
    count, end = len(timers), store.max_offset(TIMER_TOPIC, 0)
    spread = end - timers.first_pending(end)
    if spread == count:
        return  # nothing behind the first one was delivered: the queue itself says it all
    if not timer_apache.is_quick(store, count, spread):
        broker.log.info("%d timers are pending: Apache's broker would deliver some again", count)
        return
    now_ms, entries = broker.clock(), timers.pending()
    try:
        await broker.workers.run(timer_apache.write, broker.disk, store, entries, now_ms)
        due_ms = min(map(time_of, entries), default=None)
        await broker.workers.run(timers.check.save, timers.marks, end, due_ms)
    except DiskFull as error:
        broker.log.info("Apache's broker would deliver some timers again: %s", error)
