"""When a message in the timer queue is due, according to its properties."""

import pytest

from sparrowmq.broker.delivery.delay_properties import asked_time_ms, entry_ms, slot_ms

STORED_MS = 1_700_000_000_000
SLOT_MS = STORED_MS + 5_000


@pytest.mark.parametrize(
    ("fields", "due_ms"),
    [
        ({"TIMER_DELIVER_MS": str(SLOT_MS + 700)}, SLOT_MS + 700),
        ({"TIMER_DELIVER_MS": str(SLOT_MS + 1)}, SLOT_MS + 1),
        ({"TIMER_DELIVER_MS": str(SLOT_MS + 1_000)}, SLOT_MS + 1_000),
        ({"TIMER_DELAY_MS": "5300"}, SLOT_MS + 300),
        ({"TIMER_DELAY_SEC": "6"}, SLOT_MS + 1_000),
    ],
)
def test_an_entry_with_the_requested_time_is_due_to_the_millisecond(
    fields: dict[str, str], due_ms: int
) -> None:
    assert entry_ms({"TIMER_OUT_MS": str(SLOT_MS), **fields}, STORED_MS) == due_ms


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"TIMER_DELIVER_MS": "soon"},
        {"TIMER_DELIVER_MS": str(SLOT_MS)},
        {"TIMER_DELIVER_MS": str(SLOT_MS + 1_001)},
    ],
)
def test_an_entry_whose_slot_disagrees_is_due_at_the_end_of_its_slot(
    fields: dict[str, str],
) -> None:
    assert entry_ms({"TIMER_OUT_MS": str(SLOT_MS), **fields}, STORED_MS) == SLOT_MS + 1_000


def test_a_recall_is_due_at_the_beginning_of_its_slot() -> None:
    fields = {"TIMER_OUT_MS": str(SLOT_MS), "TIMER_DEL_UNIQKEY": "orders+U1"}
    assert entry_ms(fields | {"TIMER_DELIVER_MS": str(SLOT_MS + 5)}, STORED_MS) == SLOT_MS


@pytest.mark.parametrize("slot", [None, "", "-", "--1", "x", "1.5", "\u0661", "1" * 20])
def test_a_message_without_a_slot_is_not_a_timer_entry(slot: str | None) -> None:
    assert entry_ms({} if slot is None else {"TIMER_OUT_MS": slot}, STORED_MS) is None


def test_seconds_take_precedence_over_milliseconds_and_those_over_a_time() -> None:
    fields = {"TIMER_DELIVER_MS": "1700000099000", "TIMER_DELAY_MS": "10", "TIMER_DELAY_SEC": "3"}
    assert asked_time_ms(fields, STORED_MS) == STORED_MS + 3_000
    del fields["TIMER_DELAY_SEC"]
    assert asked_time_ms(fields, STORED_MS) == STORED_MS + 10
    del fields["TIMER_DELAY_MS"]
    assert asked_time_ms(fields, STORED_MS) == 1_700_000_099_000


@pytest.mark.parametrize("text", ["", "-", "-x", "x", "1 000", "\u0661" * 13])
def test_a_requested_time_that_is_not_a_number_is_ignored(text: str) -> None:
    assert asked_time_ms({"TIMER_DELIVER_MS": text}, STORED_MS) is None
    assert asked_time_ms({"TIMER_DELAY_MS": text}, STORED_MS) is None


def test_a_time_before_the_epoch_is_a_number() -> None:
    assert asked_time_ms({"TIMER_DELIVER_MS": "-5"}, STORED_MS) == -5


def test_a_slot_is_the_last_whole_second_before_the_time() -> None:
    assert slot_ms(SLOT_MS + 1) == slot_ms(SLOT_MS + 1_000) == SLOT_MS
    assert slot_ms(SLOT_MS) == SLOT_MS - 1_000
