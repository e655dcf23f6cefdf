"""`sparrowmq consume --count N`: N messages at once, and the next run starts after them."""

import asyncio

import pytest

from sparrowmq.cli.commands.consume import Showing, show, showing_consumer
from sparrowmq.client.group.broker_requests import routes
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.protocol.heartbeat import ConsumeFromWhere
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import GROUP, TOPIC, create_topic, send, stored_offset


def consumed(sim: RunningCluster, name: str, count: int, *, is_stopped: bool = False) -> list[str]:
    """What a run shows, as the body of each message; one that is stopped is so at once."""
    stopping = asyncio.Event()
    if is_stopped:
        stopping.set()
    shown: list[str] = []
    client = sim.client_on(name, routes)
    consumer = showing_consumer(
        GROUP,
        {TOPIC: "*"},
        client=client,
        from_where=ConsumeFromWhere.FIRST_OFFSET,
        threads=InlineWorkers(),
    )

    async def run() -> None:
        await client.start()
        async with consumer:
            await show(consumer, Showing(count, shown.append), stopping)
        await client.stop()

    sim.run(run(), on=sim.host(name))
    return [line.rpartition(": ")[2] for line in shown]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_next_run_begins_exactly_with_the_message_after_the_last_one(count: int) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, *(b"%d" % number for number in range(2 * count)))
        assert consumed(sim, "first", count) == [str(number) for number in range(count)]
        assert stored_offset(sim) == count
        rest = [str(number) for number in range(count, 2 * count)]
        assert consumed(sim, "second", count) == rest
        assert stored_offset(sim) == 2 * count


@pytest.mark.parametrize("is_stopped", [False, True])
def test_an_orderly_stop_logs_nothing(caplog: pytest.LogCaptureFixture, is_stopped: bool) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"wanted", b"too much")
        shown = consumed(sim, "member", 1, is_stopped=is_stopped)
        assert shown == ([] if is_stopped else ["wanted"])
        assert [each for each in caplog.records if each.name.startswith("sparrowmq.client")] == []


def test_messages_of_several_queues_are_neither_lost_nor_repeated() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=4)
        bodies = [f"{queue}-{number}" for queue in range(4) for number in range(3)]
        for body in bodies:
            send(sim, body.encode(), queue_id=int(body[0]))
        runs = [consumed(sim, f"run-{number}", 3) for number in range(4)]
        assert sorted(body for run in runs for body in run) == bodies
        assert [stored_offset(sim, queue) for queue in range(4)] == [3, 3, 3, 3]


def test_a_run_stops_without_waiting_for_one_message_too_many() -> None:
    def took_s(messages: int) -> float:
        with SimCluster(seed=1).run() as sim:
            create_topic(sim)
            send(sim, b"wanted", *[b"too much"] * messages)
            began_s = sim.now_s
            assert consumed(sim, "member", 1) == ["wanted"]
            return sim.now_s - began_s

    # Virtual time: a run that finds one more does not wait for it.
    assert took_s(1) == pytest.approx(took_s(0), abs=0.5)
