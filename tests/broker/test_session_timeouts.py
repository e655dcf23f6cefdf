"""Members of our own client send keep-alives: one that stops is detected within seconds."""

from sparrowmq.net.calls import Response
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.clients import (
    NEW_SESSION,
    Heartbeat,
    HeartbeatAnswer,
    NotifyConsumerIdsChanged,
)
from sparrowmq.protocol.heartbeat import HeartbeatData
from tests.broker.test_queue_locks import FIRST, lock
from tests.broker.world import TalkingClient, World, subscribes, world_with


def join(client: TalkingClient, *groups: str) -> HeartbeatAnswer:
    """With a session."""
    data = HeartbeatData(client_id=client.name, consumer_data_set=tuple(map(subscribes, groups)))
    return client.ask(Heartbeat(session=NEW_SESSION), data.to_json()).header(HeartbeatAnswer)


def beat(client: TalkingClient, session: str | None) -> Response:
    return client.ask(Heartbeat(session=session))


def client_ids(world: World) -> list[str]:
    group = world.broker.consumers.group("billing")
    return [] if group is None else sorted(group.client_ids)


def test_a_member_without_beats_is_removed_after_4_s_and_the_others_are_notified(
    world: World,
) -> None:
    silent, lively = world.client("silent"), world.client("lively")
    sessions = {client: join(client, "billing") for client in (silent, lively)}
    assert {answer.session_ms for answer in sessions.values()} == {4_000}
    for client, answer in sessions.items():
        assert beat(client, answer.session).code == ResponseCode.SUCCESS
    lock(silent, FIRST)
    told = len(lively.answered.of(NotifyConsumerIdsChanged))
    for _ in range(3):
        world.sim.advance(1)
        beat(lively, sessions[lively].session)
    assert client_ids(world) == ["lively", "silent"]
    for _ in range(2):
        world.sim.advance(1)
        beat(lively, sessions[lively].session)
    assert client_ids(world) == ["lively"]
    assert len(lively.answered.of(NotifyConsumerIdsChanged)) == told + 1
    assert lock(lively, FIRST) == {FIRST}


def test_a_beat_of_a_session_that_has_ended_is_refused(world: World) -> None:
    member = world.client("a")
    session = join(member, "billing").session
    member.leave("billing")
    refused = beat(member, session)
    assert refused.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert "has ended" in refused.remark


def test_a_session_lives_on_with_the_other_groups_of_its_client(world: World) -> None:
    member = world.client("a")
    session = join(member, "billing", "audit").session
    member.leave("billing")
    assert beat(member, session).code == ResponseCode.SUCCESS
    member.leave("audit")
    assert beat(member, session).code == ResponseCode.CONSUMER_NOT_ONLINE


def test_no_session_is_opened_where_they_are_switched_off() -> None:
    with world_with(session_timeout_s=0.0) as world:
        member = world.client("a")
        answer = join(member, "billing")
        assert (answer.session, answer.session_ms) == (None, None)
        world.sim.advance(60)
        assert client_ids(world) == ["a"]
