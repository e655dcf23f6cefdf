"""Sends look for parts of names before they take properties apart."""

from sparrowmq.broker.placement import SPECIAL


def test_every_property_that_makes_a_message_special_is_noticed() -> None:
    hints = ("DELAY", "TIMER_", "TRAN_MSG")
    assert [name for name in SPECIAL if not any(hint in name for hint in hints)] == []
