"""What happens to servers, members and topics in a campaign, and the run itself.

The worlds, simulated or of real processes, say how a broker dies and a clock is set; what operators
do goes over the wire and is the same in both.
"""

import contextlib
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random

from sparrowmq.disk.disk import Disk
from sparrowmq.net.calls import Response
from sparrowmq.net.workers import Workers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.admin import DeleteExpiredLog
from sparrowmq.protocol.headers.consumer_calls import InvokeResetOffset
from sparrowmq.protocol.headers.groups import DeleteGroup
from sparrowmq.protocol.headers.nameserver import DeleteTopicRoute
from sparrowmq.protocol.headers.offsets import GetMaxOffset, GetMinOffset, OffsetFound
from sparrowmq.protocol.headers.statistics import GetAllConsumerOffsets
from sparrowmq.protocol.headers.topics import CreateTopic, DeleteTopic
from sparrowmq.protocol.offsets_body import ConsumerOffsetTable
from tests.faults.campaign import Fault, Judged, Reset, Story, judge, listed
from tests.faults.campaign_clients import (
    FLEETING,
    IN_ORDER,
    LITE,
    ORDERED,
    PLAIN,
    PUSH,
    QUEUES,
    SUBSCRIBED,
    TOPICS,
    ClientWorld,
    Load,
    Member,
    make_members,
)
from tests.faults.campaign_log import LogIndex
from tests.faults.campaign_stream import STREAM, STREAMED, Stream
from tests.faults.checker import MessageId

_GROUPS = (PUSH, LITE, IN_ORDER)
KEPT_S = 60
"""Retention of the broker."""
DRAINED_S = 200.0
"""Everything is handled so long after the last fault: a lock's life and two rebalances, twice."""
_DRIVER_STARTS_S = 120.0
"""What Java and Spark may take on a busy machine; a kill before that would be one of nothing."""


class World(ClientWorld, ABC):
    """Servers and hosts that things can happen to."""

    route_poll_s = 30.0
    """How often clients ask for routes."""
    look_s = 5.0
    """How often the campaign looks whether everything is handled."""

    def __init__(self, story: Story, offsets_dir: Path, threads: Workers | None) -> None:
        self.story = story
        self.offsets_dir = offsets_dir
        self.threads = threads
        self.log = LogIndex()
        self.members: dict[str, Member] = {}
        self.queues = dict.fromkeys(TOPICS, QUEUES)
        """To write to."""
        self.committed: dict[tuple[str, str, int], int] = {}
        """What each group had stored when it was last looked at."""
        self.passed: dict[str, set[MessageId]] = defaultdict(set)
        """What it had passed without handling it, reported once."""
        self.stream: Stream | None = None
        """A reader that Spark runs, in worlds that have one."""

    # ---- time and servers

    @abstractmethod
    def pass_time(self, seconds: float) -> None:
        """Let the campaign run for this time."""

    @abstractmethod
    def call(self, header: RequestHeader, body: bytes = b"") -> Response:
        """Ask the broker, which is up; again until it answers."""

    @abstractmethod
    def call_name_server(self, header: RequestHeader) -> Response:
        """The same with the name server."""

    @property
    @abstractmethod
    def disk(self) -> Disk:
        """The broker's current files."""

    @abstractmethod
    def kill_broker(self, down_s: float, *, port_changes: bool = False) -> None:
        """kill -9, and another life so much later, perhaps on another port."""

    @abstractmethod
    def stop_broker(self, down_s: float) -> None:
        """The same with SIGTERM."""

    @abstractmethod
    def cut_power(self, down_s: float) -> float:
        """The same with everything gone that was not synced; when it died.

        What was in the log just before that is read."""

    @abstractmethod
    def pause_broker(self, seconds: float) -> None:
        """SIGSTOP, SIGCONT."""

    @abstractmethod
    def lose_name_server(self, seconds: float) -> None:
        """Kill it, and start it again later."""

    @abstractmethod
    def step_clock(self, seconds: float) -> None:
        """Set the clocks of all processes forward or back."""

    # ---- hosts of members

    @abstractmethod
    def isolate(self, names: Iterable[str], seconds: float) -> None:
        """Nothing gets through between these hosts and the broker."""

    @abstractmethod
    def break_connections(self) -> None:
        """Every connection of the broker is reset."""

    @abstractmethod
    def pause_member(self, name: str, seconds: float) -> None:
        """SIGSTOP, SIGCONT."""

    @abstractmethod
    def kill_member(self, name: str) -> None:
        """kill -9; the caller starts it again."""

    @abstractmethod
    def dead_members(self) -> dict[str, str]:
        """Those whose life ended by itself, and why."""

    # ---- what is noted

    def note_stream(self) -> None:
        """Take what the stream has written down so far."""
        if self.stream is not None:
            self.stream.note(self)

    @contextlib.contextmanager
    def fault(self, kind: str, *members: str, step_s: float = 0.0) -> Iterator[Fault]:
        """Something happens inside of the block."""
        noted = Fault(kind, self.now_s, members=members, step_s=step_s)
        self.story.faults.append(noted)
        yield noted
        noted.ended_s = self.now_s


# ---- faults


def kill(world: World, rng: Random) -> None:
    """The broker gets kill -9."""
    with world.fault("kill"):
        world.kill_broker(rng.random() * 3)


def stop(world: World, rng: Random) -> None:
    """The broker is stopped in order."""
    with world.fault("stop"):
        world.stop_broker(rng.random() * 3)


def connections(world: World, rng: Random) -> None:
    """Connections break, and can be made again at once."""
    with world.fault("connections"):
        world.break_connections()


def port(world: World, rng: Random) -> None:
    """The broker comes back on another port."""
    with world.fault("port"):
        world.kill_broker(rng.random(), port_changes=True)
        world.pass_time(rng.choice((1.0, world.route_poll_s + 5)))


def power(world: World, rng: Random) -> None:
    """The broker's machine loses power; all other processes keep running."""
    with world.fault("power"):
        died_s = world.cut_power(rng.random() * 3)
        world.story.cuts.append(world.log.cut(died_s, world.disk))


def pause(world: World, rng: Random) -> None:
    """The broker freezes."""
    with world.fault("pause"):
        world.pause_broker(rng.choice((0.3, 2.0, 6.0)) * (0.5 + rng.random()))


def partition(world: World, rng: Random) -> None:
    """Some members cannot reach the broker."""
    names = rng.sample(sorted(world.members), rng.randint(1, 4))
    with world.fault("partition", *names):
        world.isolate(names, rng.choice((1.0, 8.0, 30.0)) * (0.5 + rng.random()))


def member(world: World, rng: Random) -> None:
    """A member is killed, and another one takes its place; a broadcasting one resumes from its own
    file."""
    name = rng.choice(sorted(world.members))
    with world.fault("member", name):
        world.kill_member(name)
        world.pass_time(rng.random() * 2)
        world.members[name].start()


def stopped_member(world: World, rng: Random) -> None:
    """A member freezes."""
    name = rng.choice(sorted(world.members))
    with world.fault("stopped member", name):
        world.pause_member(name, rng.choice((1.0, 6.0)) * (0.5 + rng.random()))


def driver(world: World, rng: Random) -> None:
    """Spark's driver is killed while it reads, and another one continues from its checkpoint."""
    assert world.stream is not None, "this world has no stream"
    deadline_s = world.now_s + _DRIVER_STARTS_S
    while not world.stream.is_reading and world.now_s < deadline_s:
        world.pass_time(world.look_s)
    world.pass_time(rng.random() * 2)
    if why := world.stream.why_ended():
        world.story.seen_wrong.append(f"{STREAM} ended: {why}")
    with world.fault("driver"):
        world.stream.kill()
        world.pass_time(rng.random() * 3)
        world.stream.start()


def name_server(world: World, rng: Random) -> None:
    """The only name server is away."""
    with world.fault("name server"):
        world.lose_name_server(rng.choice((1.0, 10.0, 40.0)) * (0.5 + rng.random()))


def clock_forward(world: World, rng: Random) -> None:
    """The clock is set."""
    seconds = rng.choice((1, 30, 600)) * (0.5 + rng.random())
    with world.fault("clock forward", step_s=seconds):
        world.step_clock(seconds)


def clock_back(world: World, rng: Random) -> None:
    """The clock is set back."""
    seconds = rng.choice((1, 20, 60)) * (0.5 + rng.random())
    with world.fault("clock back", step_s=-seconds):
        world.step_clock(-seconds)


def retention(world: World, rng: Random) -> None:
    """The oldest files of the log go."""
    with world.fault("retention"):
        world.log.read(world.disk)
        world.call(DeleteExpiredLog())
        note_expired(world)


def note_expired(world: World) -> None:
    """Groups need not see messages that retention deleted; deleting younger ones is a loss."""
    sendings = world.story.sendings
    gone = world.log.expire(world.disk)
    world.story.excuse(one for one in gone if world.now_s - sendings[one].attempted_s > KEPT_S)


def topic(world: World, rng: Random) -> None:
    """A topic is deleted while it is used, and created again."""
    with world.fault("topic"):
        world.call(DeleteTopic(topic=FLEETING))
        world.call_name_server(DeleteTopicRoute(topic=FLEETING))
        sendings = world.story.sendings.values()
        world.story.excuse(one.message for one in sendings if one.topic == FLEETING)
        world.log.read(world.disk)
        world.log.forget_topic(FLEETING)
        world.pass_time(rng.random() * rng.choice((0.1, 5)))
        set_queues(world, FLEETING, QUEUES)


def group(world: World, rng: Random) -> None:
    """A group is deleted while its members work."""
    with world.fault("group"):
        name = rng.choice(_GROUPS)
        world.call(DeleteGroup(group_name=name, clean_offset=rng.random() < 0.5))


def grow(world: World, rng: Random) -> None:
    """A topic gets more queues."""
    with world.fault("grow"):
        name = rng.choice((PLAIN, ORDERED))
        world.queues[name] = min(12, world.queues[name] + rng.randint(1, 3))
        set_queues(world, name, world.queues[name])


def shrink(world: World, rng: Random) -> None:
    """A topic gets fewer queues: first to write to, and to read from when they are drained."""
    with world.fault("shrink"):
        name = rng.choice((PLAIN, ORDERED))
        write = max(2, world.queues[name] - rng.randint(1, 3))
        set_queues(world, name, write, read=world.queues[name])
        world.pass_time(5 + rng.random() * 5)
        if all(_is_drained(world, name, queue_id) for queue_id in range(write, 12)):
            set_queues(world, name, write)
            world.queues[name] = write
        else:
            set_queues(world, name, world.queues[name])


def reset(world: World, rng: Random) -> None:
    """An operator moves a group: back, or on past messages that it need not see then."""
    name = rng.choice(_GROUPS)
    about = rng.choice([one for one in SUBSCRIBED[name] if one != FLEETING])
    queue_id = rng.randrange(world.queues[about])
    with world.fault("reset"):
        low = _offset(world, GetMinOffset(topic=about, queue_id=queue_id))
        high = _offset(world, GetMaxOffset(topic=about, queue_id=queue_id))
        target = rng.randint(max(low, high - 30), high)
        world.log.read(world.disk)
        below = set(world.log.in_queue(about, queue_id, target))
        again = set(world.log.in_queue(about, queue_id, high)) - below
        world.story.excuse(below, name)
        world.story.resets[name, about, queue_id] = Reset(world.now_s, again)
        header = InvokeResetOffset(
            topic=about, group=name, timestamp=-1, queue_id=queue_id, offset=target
        )
        response = world.call(header)
        assert response.code == ResponseCode.SUCCESS, response.remark


FaultKind = Callable[[World, Random], None]
FAULTS: dict[str, FaultKind] = {
    "kill": kill,
    "stop": stop,
    "connections": connections,
    "port": port,
    "power": power,
    "pause": pause,
    "partition": partition,
    "member": member,
    "stopped-member": stopped_member,
    "driver": driver,
    "name-server": name_server,
    "clock-forward": clock_forward,
    "clock-back": clock_back,
    "retention": retention,
    "topic": topic,
    "group": group,
    "grow": grow,
    "shrink": shrink,
    "reset": reset,
}
MOVES_BACK = {"power", "topic", "group", "reset"}
"""Kinds after which a group's stored offset may be lower than before: no kill undoes a commit."""


def set_queues(world: World, name: str, write: int, *, read: int | None = None) -> None:
    """Create a topic, or change it."""
    header = CreateTopic(topic=name, read_queue_nums=read or write, write_queue_nums=write, perm=6)
    response = world.call(header)
    assert response.code == ResponseCode.SUCCESS, response.remark


def _offset(world: World, header: RequestHeader) -> int:
    return world.call(header).header(OffsetFound).offset


def _is_drained(world: World, name: str, queue_id: int) -> bool:
    """Whether every group has handled all of a queue."""
    world.note_stream()
    world.log.read(world.disk)
    stored = set(world.log.in_queue(name, queue_id, 1 << 62))
    story = world.story
    return all(
        stored <= story.ended[who] | story.excused[who] | story.excused[""]
        for who, topics in story.groups.items()
        if name in topics
    )


# ---- the run


def run(
    world: World,
    kinds: Iterable[str],
    count: int,
    *,
    pause_s: float = 0.15,
    drained_s: float = DRAINED_S,
) -> Judged:
    """So many faults of these kinds under load, then peace, and the verdict."""
    chosen = [FAULTS[kind] for kind in kinds]
    rng = world.rng("faults")
    for name in TOPICS:
        set_queues(world, name, QUEUES)
    world.pass_time(1.0)
    world.members = make_members(world)
    for one in world.members.values():
        one.start()
    if world.stream is not None:
        world.story.groups[STREAM] = STREAMED
        world.stream.start()
    world.pass_time(3.0)
    load = Load(world, pause_s)
    for _ in range(count):
        world.pass_time(rng.choice((0.2, 2.0, 8.0)) * (0.5 + rng.random()))
        watch(world)
        rng.choice(chosen)(world, rng)
    world.pass_time(2 * world.look_s)
    load.stop()
    drain(world, drained_s)
    return judge(world.story)


def watch(world: World) -> None:
    """No group has stored an offset past a message that it has not handled, or gone back."""
    table = _progress(world)
    world.log.read(world.disk)
    note_expired(world)
    story = world.story
    faults = {fault.kind for fault in story.faults[-1:]}
    wrong: list[str] = []
    committed: dict[tuple[str, str, int], int] = {}
    for who in _GROUPS:
        for name in SUBSCRIBED[who]:
            for queue_id, offset in table.get(f"{name}@{who}", {}).items():
                place = who, name, queue_id
                stored = set(world.log.in_queue(name, queue_id, offset))
                passed = stored - story.ended[who] - story.excused[who] - story.excused[""]
                passed -= world.passed[who]
                world.passed[who] |= passed
                wrong += [f"{who} passed {one} by {offset} in {name}/{queue_id}" for one in passed]
                before = world.committed.get(place, 0)
                if offset < before and not faults & MOVES_BACK:
                    wrong.append(f"{who} went from {before} to {offset} in {name}/{queue_id}")
                committed[place] = offset
    world.committed = committed
    at = f"at {world.now_s:.1f} s after {', '.join(faults) or 'nothing'}"
    story.seen_wrong += listed(f"committed wrongly {at}", wrong)


def drain(world: World, within_s: float) -> None:
    """Wait until all messages are handled, and check what is left."""
    story = world.story
    deadline_s = world.now_s + within_s
    while world.now_s < deadline_s:
        world.pass_time(world.look_s)
        world.note_stream()
        if not any(story.owed(who) for who in story.groups) and not backlog(world):
            break
    # Whatever should not come gets its chance as well.
    world.pass_time(world.look_s)
    world.note_stream()
    watch(world)
    story.seen_wrong += [f"{name} ended: {why}" for name, why in world.dead_members().items()]
    story.seen_wrong += listed("backlogs are left", backlog(world))
    story.logged = world.log.messages()


def backlog(world: World) -> list[str]:
    """Queues in which a group has not stored that it has consumed everything."""
    table = _progress(world)
    found = []
    for who in _GROUPS:
        for name in SUBSCRIBED[who]:
            for queue_id in range(world.queues[name]):
                end = _offset(world, GetMaxOffset(topic=name, queue_id=queue_id))
                stored = table.get(f"{name}@{who}", {}).get(queue_id, 0)
                if stored != end:
                    found.append(f"{who} in {name}/{queue_id}: {stored} of {end}")
    return found


def _progress(world: World) -> dict[str, dict[int, int]]:
    return ConsumerOffsetTable.from_json(world.call(GetAllConsumerOffsets()).body).offset_table
