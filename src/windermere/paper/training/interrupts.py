"""Stopping in good order: Ctrl-C, a terminated process, a time limit."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Literal, TypeAlias

StopReason: TypeAlias = Literal["time limit", "interrupted", "terminated"]


@dataclass
class StopSign:
    """Raised by a signal or a clock, read by the loop between two iterations."""

    time_limit: float | None = None
    """Seconds."""
    reason: StopReason | None = None
    started: float = field(default_factory=time.monotonic)

    def check(self) -> StopReason | None:
        """Why to stop now, or None."""
        if self.reason is None and self.time_limit is not None and time.monotonic() - self.started >= self.time_limit:
            self.reason = "time limit"
        return self.reason


@contextmanager
def stop_sign(time_limit: float | None = None) -> Iterator[StopSign]:
    """Turn the first Ctrl-C or SIGTERM into a sign; a second one acts as ever."""
    sign = StopSign(time_limit)
    if threading.current_thread() is not threading.main_thread():
        yield sign  # only the main thread may handle signals
        return
    before: dict[signal.Signals, Any] = {}

    def raise_sign(number: int, frame: FrameType | None) -> None:
        sign.reason = "interrupted" if number == signal.SIGINT else "terminated"
        for code, handler in before.items():
            signal.signal(code, handler)

    for code in (signal.SIGINT, signal.SIGTERM):
        before[code] = signal.signal(code, raise_sign)
    try:
        yield sign
    finally:
        for code, handler in before.items():
            signal.signal(code, handler)
