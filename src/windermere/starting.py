"""The seconds that imports take when the program `windermere` starts, or a command: nothing has begun yet."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath
from threading import current_thread, main_thread

INTERRUPTED = 130
"""The exit code of Ctrl-C, as a shell tells it."""


@contextmanager
def importing() -> Iterator[None]:
    """Ctrl-C while the program is imported ends it at once and quietly. It leaves no exception to the modules that are
    half imported: some would swallow it, or make another of it. Where Windermere is a library nothing is changed."""
    plain = current_thread() is main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not plain or not _is_the_program():
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_the_program() -> bool:
    """Whether Python runs the script `windermere`, or `-m windermere`: elsewhere signals are not ours to handle."""
    if sys.argv[0] == "-m":  # a module that is still looked for: its name stands before its arguments
        return sys.orig_argv[-len(sys.argv)].removeprefix("-m") == "windermere"
    started = PurePath(sys.argv[0])
    return started.stem == "windermere" or started.parts[-2:] == ("windermere", "__main__.py")
