"""Logs for people and for machines."""

import json
import logging

from click.testing import CliRunner

from sparrowmq import JsonLines
from sparrowmq.cli.logs import FloodGate
from sparrowmq.cli.main import app
from tests.cli.in_process import own_signals


def record(message: str, *args: object, at_s: float = 1_000.0) -> logging.LogRecord:
    made = logging.LogRecord("sparrowmq.x", logging.WARNING, __file__, 1, message, args, None)
    made.created = at_s
    return made


def test_a_flood_of_one_message_is_cut_with_a_notice() -> None:
    gate = FloodGate(most=3, window_ms=1_000)
    lines = [record("peer %d is odd", number) for number in range(10)]
    passed = [line.getMessage() for line in lines if gate.filter(line)]
    assert passed[:2] == ["peer 0 is odd", "peer 1 is odd"]
    assert passed[2].startswith("peer 2 is odd (more of these follow")
    assert len(passed) == 3


def test_other_messages_pass_while_one_floods() -> None:
    gate = FloodGate(most=1, window_ms=1_000)
    assert gate.filter(record("a"))
    assert not gate.filter(record("a"))
    assert gate.filter(record("b"))


def test_the_next_window_lets_the_message_through_again() -> None:
    gate = FloodGate(most=1, window_ms=1_000)
    assert gate.filter(record("a", at_s=1.0))
    assert not gate.filter(record("a", at_s=1.5))
    assert gate.filter(record("a", at_s=2.1))


def test_a_command_leaves_the_logs_of_its_process_as_they_were() -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    with own_signals():
        ended = CliRunner().invoke(app, ["consume", "t", "--group", "g", "-n", "127.0.0.1:1"])
    assert ended.exit_code == 1
    assert (root.handlers, root.level) == before


def test_a_json_line_carries_time_level_logger_and_message() -> None:
    line = json.loads(JsonLines().format(record("broker %s is up", "ä")))
    assert line == {
        "time": "1970-01-01T00:16:40.000+00:00",
        "level": "warning",
        "logger": "sparrowmq.x",
        "message": "broker ä is up",
    }
