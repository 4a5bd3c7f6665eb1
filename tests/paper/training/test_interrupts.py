"""Signals and clocks become a sign that the loop reads between two iterations."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from windermere.paper.training import StopSign, stop_sign


@contextmanager
def recorded(code: signal.Signals) -> Iterator[list[int]]:
    """What reaches the handler that was there before ours."""
    reached: list[int] = []
    before = signal.signal(code, lambda number, frame: reached.append(number))
    try:
        yield reached
    finally:
        signal.signal(code, before)


@pytest.mark.parametrize(("code", "reason"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")])
def test_the_first_signal_is_a_sign_and_the_second_acts_as_ever(code: signal.Signals, reason: str) -> None:
    with recorded(code) as reached, stop_sign() as sign:
        assert sign.check() is None
        signal.raise_signal(code)
        assert (sign.check(), reached) == (reason, [])
        signal.raise_signal(code)
        assert (sign.check(), reached) == (reason, [code])


def test_handlers_are_put_back_even_after_an_error() -> None:
    before = [signal.getsignal(code) for code in (signal.SIGINT, signal.SIGTERM)]

    def fail() -> None:
        with stop_sign():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [signal.getsignal(code) for code in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_time_limit_of_no_time_has_passed_and_one_of_a_day_has_not() -> None:
    assert StopSign(time_limit=0.0).check() == "time limit"
    assert StopSign(time_limit=86_400.0).check() is None
    assert StopSign().check() is None


def test_a_signal_before_the_time_limit_is_the_reason() -> None:
    sign = StopSign(time_limit=0.0, reason="interrupted")
    assert sign.check() == "interrupted"


def test_outside_the_main_thread_there_is_a_clock_and_no_signals() -> None:
    handler, found = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with stop_sign(0.0) as sign:
            found.append((sign.check(), signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [("time limit", handler)]
