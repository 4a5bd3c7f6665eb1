"""`dying.py RANK STEPS PROGRAM ...` runs a program, and one rank of it dies by SIGKILL after so many optimizer steps,
the first time that the elastic agent starts it."""

import os
import runpy
import signal
import sys
from collections.abc import Callable
from typing import Any

import torch

from tests.processes import leave


def dying(step: Callable[..., Any], left: int) -> Callable[..., Any]:
    def taken(*given: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(*given, **named)

    return taken


if __name__ == "__main__":
    torch.set_num_threads(1)
    rank, after, *sys.argv = sys.argv[1:]
    if (os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]) == (rank, "0"):
        torch.optim.Adam.step = dying(torch.optim.Adam.step, int(after))  # type: ignore[method-assign]
    runpy.run_path(sys.argv[0], run_name="__main__")
    leave()
