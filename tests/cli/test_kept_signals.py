"""A step that must not be interrupted keeps signals until it is done."""

import signal
import threading
from collections.abc import Iterator

import pytest

from sparrowmq.cli.stop_signal import signals_kept

BOTH = (signal.SIGTERM, signal.SIGINT)


class Stopped(Exception):
    """Raised by the handlers of this test."""


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Handlers that end what runs, as those of commands do."""

    def stop(number: int, _: object) -> None:
        raise Stopped(signal.Signals(number).name)

    before = {number: signal.signal(number, stop) for number in BOTH}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", BOTH)
def test_a_signal_is_handled_when_the_step_is_done(number: signal.Signals) -> None:
    done = []

    def step() -> None:
        with signals_kept():
            signal.raise_signal(number)
            signal.raise_signal(number)
            done.append("the rest of the step")
        done.append("what follows")

    with pytest.raises(Stopped, match=number.name):
        step()
    assert done == ["the rest of the step"]


def test_without_a_signal_the_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in BOTH]
    with signals_kept():
        assert [signal.getsignal(number) for number in BOTH] != before
    assert [signal.getsignal(number) for number in BOTH] == before


def test_a_step_in_another_thread_is_run_as_it_is() -> None:
    done = []

    def step() -> None:
        with signals_kept():
            done.append("the step")

    thread = threading.Thread(target=step)
    thread.start()
    thread.join()
    assert done == ["the step"]
