"""A master's clock is set while messages wait, and a slave whose clock was right takes over."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest

from sparrowmq.broker.delivery.clock_steps import ClockStep
from sparrowmq.broker.replication.replication import Role
from sparrowmq.broker.replication.table_copy import apply_state, take_state
from sparrowmq.broker.replication.table_state import TableQuestion, decode_state, encode_state
from sparrowmq.protocol.headers.replication import TakeOver
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.sim.replicated import TOPIC, bodies, follows
from tests.sim.test_role_change import NEW, OLD, ask, hand_over, is_serving

HOUR_MS = 3_600_000
DELAY_S = 60.0


class WrongClock:
    """The clock of one host, which is wrong until it is set."""

    def __init__(self, sim: RunningCluster, ahead_ms: int) -> None:
        self._sim = sim
        self.ahead_ms = ahead_ms

    def __call__(self) -> int:
        return self._sim.clock() + self.ahead_ms


@contextmanager
def wrong_master(ahead_ms: int) -> Iterator[tuple[RunningCluster, WrongClock]]:
    """A master whose clock is wrong, and its slave."""
    with SimCluster(slaves=1).run() as sim:
        clock = WrongClock(sim, ahead_ms)
        sim.brokers[OLD].stop()
        sim.brokers[OLD].clock = clock
        sim.brokers[OLD].start()
        sim.client.disconnect()
        sim.until(lambda: follows(sim))
        yield sim, clock


def planned(sim: RunningCluster) -> None:
    hand_over(sim)


def after_a_loss(sim: RunningCluster) -> None:
    sim.brokers[OLD].kill()
    sim.advance(6)
    ask(sim, NEW, TakeOver(accept_loss="broker-a"))


@pytest.mark.parametrize("change_roles", [planned, after_a_loss])
@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])
def test_a_delay_keeps_its_length_although_the_clock_was_set_before_a_promotion(
    step_ms: int, change_roles: Callable[[RunningCluster], None]
) -> None:
    with wrong_master(-step_ms) as (sim, clock):
        sent_s = sim.now_s
        sim.wait(sim.client.send(TOPIC, b"delayed", DELAY="5"))
        sim.advance(5)
        clock.ahead_ms = 0
        sim.advance(2)
        change_roles(sim)
        sim.until(lambda: is_serving(sim, NEW, Role.MASTER))
        sim.advance(sent_s + DELAY_S - 1 - sim.now_s)
        assert bodies(sim.brokers[NEW]) == [], "early"
        sim.advance(2)
        assert bodies(sim.brokers[NEW]) == [b"delayed"], "late"


def test_a_step_after_the_loss_of_the_master_counts_as_well() -> None:
    """Of all clocks, as when their time server is corrected."""
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        sent_s = sim.now_s
        sim.wait(sim.client.send(TOPIC, b"delayed", DELAY="5"))
        sim.advance(5)
        sim.set_clock(-HOUR_MS)
        sim.advance(2)
        sim.brokers[OLD].kill()
        sim.set_clock(2 * HOUR_MS)
        sim.advance(6)
        ask(sim, NEW, TakeOver(accept_loss="broker-a"))
        sim.until(lambda: is_serving(sim, NEW, Role.MASTER))
        sim.advance(sent_s + DELAY_S - 1 - sim.now_s)
        assert bodies(sim.brokers[NEW]) == [], "early"
        sim.advance(2)
        assert bodies(sim.brokers[NEW]) == [b"delayed"], "late"


def test_a_slaves_own_clock_does_not_count_while_it_follows() -> None:
    """What waits was stored by the master's clock, which was right."""
    with SimCluster(slaves=1).run() as sim:
        clock = WrongClock(sim, HOUR_MS)
        sim.brokers[NEW].stop()
        sim.brokers[NEW].clock = clock
        sim.brokers[NEW].start()
        sim.until(lambda: follows(sim))
        sim.wait(sim.client.send(TOPIC, b"delayed", DELAY="5"))
        sim.advance(5)
        clock.ahead_ms = 0
        sim.advance(2)
        assert sim.brokers[NEW].broker.delivery.clock.steps == ()


def test_a_master_that_sends_no_steps_leaves_those_of_the_slave() -> None:
    """As masters of earlier versions, which know nothing of them."""
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        clock = sim.brokers[NEW].broker.delivery.clock
        own: tuple[ClockStep, ...] = (ClockStep(log_offset=0, by_ms=HOUR_MS),)

        async def copied(*, is_earlier: bool) -> None:
            state = await take_state(sim.broker, TableQuestion())
            fields = msgspec.json.decode(encode_state(state)[0])
            if is_earlier:
                del fields["delivery"]["clock_steps"]
            body = msgspec.json.encode(fields)
            clock.follow(own)
            await apply_state(sim.brokers[NEW].broker, decode_state(body, is_deflated=False), None)

        sim.run(copied(is_earlier=True), on=sim.brokers[NEW].host)
        assert clock.steps == own
        sim.run(copied(is_earlier=False), on=sim.brokers[NEW].host)
        assert clock.steps == ()
