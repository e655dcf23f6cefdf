"""Everything at once: all kinds of messages and members under all kinds of faults."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.faults import scorecard_everything
from tests.faults.campaign import Call, Cut, Fault, Judged, Kind, Reset, Sending, Story, judge
from tests.faults.campaign_planted import PLANTED
from tests.faults.campaign_processes import campaign_in_processes
from tests.faults.campaign_sim import KINDS, campaign_in_simulation
from tests.faults.campaign_stream import Stream, keep
from tests.faults.checker import MessageId, State, body_of
from tests.faults.scorecard_everything import everything
from tests.seeds import in_part


@pytest.fixture(autouse=True)
def _few_logs(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of handlers fail on purpose; writing that down takes longer than the rest."""
    caplog.set_level(logging.CRITICAL, "sparrowmq")


def test_a_few_faults_lose_skip_or_reorder_no_message() -> None:
    judged = campaign_in_simulation(0, 3, sync_flush=False, kinds=["kill", "power", "member"])
    assert judged, str(judged)
    assert judged.faults == 3


@pytest.mark.slow
def test_any_faults_lose_skip_or_reorder_no_message() -> None:
    scored = everything(seed=0, small=True)
    print(scored.counts)
    assert scored.failures == []


@pytest.mark.slow
def test_a_power_loss_of_a_broker_process_skips_no_message() -> None:
    judged = campaign_in_processes(0, 4, sync_flush=False, kinds=["power", "kill", "topic"])
    print(judged)
    assert judged, str(judged)


@pytest.mark.slow
def test_without_faults_no_message_is_repeated() -> None:
    judged = campaign_in_simulation(0, 0, sync_flush=False)
    assert judged, str(judged)
    assert judged.repeated == 0
    assert judged.ok > 200


@pytest.mark.slow
def test_a_campaign_repeats_itself_from_its_seed() -> None:
    first, second = (
        campaign_in_simulation(3, 3, sync_flush=False, kinds=["kill", "pause", "member"])
        for _ in range(2)
    )
    assert first.story.calls == second.story.calls != []


def test_every_simulated_kind_of_fault_has_a_planted_bug() -> None:
    assert {planted.kinds[0] for planted in PLANTED.values()} == set(KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("name", in_part(PLANTED, few=1))
def test_planted_a_bug_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = PLANTED[name]
    planted.plant(monkeypatch.setattr)
    judged = campaign_in_simulation(
        planted.seed,
        planted.faults,
        sync_flush=planted.sync_flush,
        kinds=planted.kinds,
        drained_s=20.0,
    )
    assert any(word in problem for word in planted.noticed for problem in judged.problems), judged


# ---- the judge itself


def test_a_campaign_in_which_a_callback_held_a_loop_is_not_met(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stalled(seed: int, count: int, **_: object) -> Judged:
        return Judged(Story(seed, sync_flush=True, stalls=[(49.0, "quick"), (60.0, "slow")]))

    monkeypatch.setattr(scorecard_everything, "campaign_in_processes", stalled)
    scored = everything(seed=0, small=False, kinds=("kill",), only="processes, sync")
    text = "1 stalls over 50 ms, the longest 60 ms in slow"
    assert scored.failures == [f"processes, sync, {text}"]
    assert scored.counts.startswith("processes, sync: 0 faults") and text in scored.counts


def story(*sendings: Sending, sync_flush: bool = False) -> Story:
    told = Story(0, sync_flush, groups={"push": ("plain",)}, ordered={"push": ("plain",)})
    told.sendings = {one.message: one for one in sendings}
    return told


def sent(number: int, state: State = State.OK, **fields: object) -> Sending:
    message = MessageId("plain", number)
    sending = Sending(message, "plain", Kind.SINGLE, number, number * 1000, state=state)
    sending.acknowledged_s = number + 0.1
    for name, value in fields.items():
        setattr(sending, name, value)
    return sending


def handle(
    told: Story,
    number: int,
    at_s: float,
    *,
    member: str = "a",
    took_s: float = 0.1,
    is_done: bool = True,
) -> None:
    message = MessageId("plain", number)
    call = Call("push", member, "plain", 0, message, at_s, round(at_s * 1000))
    told.calls.append(call)
    told.end(call, at_s + took_s, is_done=is_done)


def test_unhandled_messages_count_as_skipped_if_still_in_the_log_and_lost_otherwise() -> None:
    told = story(sent(1), sent(2), sent(3, State.UNKNOWN))
    told.logged = {MessageId("plain", 2)}
    assert judge(told).problems == ["1 lost: plain-1", "1 skipped by push: plain-2"]


@pytest.mark.parametrize(
    ("sync_flush", "at_s", "problems"),
    [
        (False, 1.5, []),
        (False, 1.8, ["1 acknowledged and not durable in a power cut: plain-1"]),
        (True, 1.5, ["1 acknowledged and not durable in a power cut: plain-1"]),
    ],
)
def test_only_asynchronous_flush_may_lose_the_last_half_second_to_a_power_cut(
    sync_flush: bool, at_s: float, problems: list[str]
) -> None:
    told = story(sent(1), sync_flush=sync_flush)
    told.cuts = [Cut(at_s, {MessageId("plain", 1)})]
    judged = judge(told)
    assert judged.problems == problems
    assert judged.unsynced == 1


@pytest.mark.parametrize(
    ("sync_flush", "copied", "problems"),
    [
        (False, True, []),
        (False, False, ["1 failed and did not come again: plain-1"]),
        (True, True, ["1 failed and did not come again: plain-1"]),
    ],
)
def test_a_retry_may_only_go_with_the_power_that_took_its_copy(
    sync_flush: bool, copied: bool, problems: list[str]
) -> None:
    told = story(sent(1, kind=Kind.RETRIED), sync_flush=sync_flush)
    told.dead_letter_topic = {"undertakers": "push"}
    handle(told, 1, 1.0, is_done=False)
    told.cuts = [Cut(1.5, copied={MessageId("plain", 1)} if copied else set())]
    assert judge(told).problems == problems


@pytest.mark.parametrize("kind", ["kill", "port", "power", "stop"])
def test_no_crash_undoes_a_reset_that_was_answered(kind: str) -> None:
    told = story(sent(1))
    handle(told, 1, 2.0)
    told.resets = {("push", "plain", 0): Reset(10.0, {MessageId("plain", 1)})}
    told.faults = [Fault(kind, 10.5, 11.0)]
    assert judge(told).problems == ["1 not handled again after a reset: plain-1 by push in plain/0"]


def test_a_group_need_not_see_messages_it_was_moved_past() -> None:
    told = story(sent(1))
    told.excuse([MessageId("plain", 1)], "push")
    told.logged = {MessageId("plain", 1)}
    assert judge(told)


def test_messages_are_handled_first_in_their_order_and_may_come_again() -> None:
    told = story(sent(1), sent(2), sent(3))
    for at_s, number in enumerate((1, 2, 1, 2, 3), start=10):
        handle(told, number, at_s)
    judged = judge(told)
    assert judged, str(judged)
    assert judged.repeated == 2
    told = story(sent(1), sent(2))
    handle(told, 2, 10)
    handle(told, 1, 11)
    assert judge(told).problems == ["1 out of order: plain-1 after plain-2 in plain/0"]


def test_two_members_work_on_one_queue_only_if_the_first_is_frozen() -> None:
    told = story(sent(1), sent(2))
    handle(told, 1, 10, took_s=5)
    handle(told, 2, 12, member="b")
    assert judge(told).problems == ["1 two workers at once: plain/0 by b and a"]
    told.faults = [Fault("stopped member", 11, 20, members=("a",))]
    assert judge(told)


@pytest.mark.parametrize(
    ("kind", "at_s", "at_ms", "step_s", "problem"),
    [
        (Kind.TIME, 9, 9_000, 0.0, "early"),
        (Kind.TIME, 9, 11_000, 2.0, ""),
        (Kind.LEVEL, 9, 11_000, 2.0, "early"),
        (Kind.TIME, 11, 9_000, -2.0, ""),
        (Kind.TIME, 12, 12_000, 0.0, ""),
        (Kind.TIME, 100, 100_000, 0.0, "late"),
        (Kind.TIME, 100, 40_000, -60.0, ""),
        (Kind.LEVEL, 100, 40_000, -60.0, "late"),
    ],
)
def test_a_delayed_message_is_neither_early_nor_late(
    kind: Kind, at_s: float, at_ms: int, step_s: float, problem: str
) -> None:
    told = story(sent(1, kind=kind, delay_s=9.0))
    handle(told, 1, at_s)
    told.calls[0].clock_ms = at_ms
    told.faults = [Fault("clock", 2, 2, step_s=step_s)]
    assert [one.split(":")[0] for one in judge(told).problems] == ([f"1 {problem}"] * bool(problem))


def test_a_stream_has_handled_the_messages_its_drivers_recorded(tmp_path: Path) -> None:
    told = story(sent(1), sent(2))
    told.groups = {"stream": ("plain",)}
    world: Any = SimpleNamespace(story=told, now_s=10.0, clock=lambda: 10_000)
    stream = Stream("127.0.0.1:1", tmp_path)
    rows = [("plain", 0, bytearray(body_of(MessageId("plain", 1))))]
    frame: Any = SimpleNamespace(collect=lambda: rows)
    for batch_id in (0, 1):
        keep(tmp_path, frame, batch_id)
        stream.note(world)
    told.logged = {MessageId("plain", 2)}
    judged = judge(told)
    assert judged.problems == ["1 skipped by stream: plain-2"]
    assert judged.repeated == 1


def test_what_was_rolled_back_is_never_delivered() -> None:
    told = story(sent(1, kind=Kind.ROLLBACK))
    assert judge(told)
    handle(told, 1, 10)
    assert judge(told).problems == ["1 rolled back and delivered: plain-1"]


def test_invented_or_changed_messages_are_noticed() -> None:
    told = story(sent(1))
    assert told.take(b"plain-2|", "here") is None
    assert told.take(b"plain-1|!", "here") is None
    assert told.seen_wrong == ["phantom here: b'plain-2|'", "damaged here: plain-1"]
