"""Reads what to train, an object a line, trains it in a fork, and kills that: at an operation on a file, or after a
time. Prints the signal that ended it, or 0. PyTorch is imported once for all."""

import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

import torch

from tests.fuzz.sittings import CONFIGS, killed_at
from tests.paper.training.small import trained


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def train(asked: dict[str, str]) -> None:
    moment = int(asked["moment"]) if "moment" in asked else None
    with killed_at(moment, Path(asked["folder"]), die):
        trained(Path(asked["folder"]), CONFIGS[int(asked["number"])], resume=bool(asked["begun"]))


def in_a_fork(asked: dict[str, str]) -> int:
    if child := os.fork():
        if "seconds" in asked:
            time.sleep(float(asked["seconds"]))
            os.kill(child, signal.SIGKILL)
        return max(0, -os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    try:
        train(asked)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for line in sys.stdin:
        print(in_a_fork(json.loads(line)), flush=True)
