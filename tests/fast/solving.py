"""Reads what to solve, a list of surroundings a line, and solves it in C in new processes, all of a line at once.

PyTorch is imported once, and each process is a fork: a library that kills it kills nothing else.
"""

import json
import logging
import os
import sys
import traceback
from typing import Any

import torch
from torch import Tensor, nn

from windermere.fast.cpu import compiled
from windermere.paper.architectures import SphereField, initialise
from windermere.solvers import FixedStep, solve


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """The end of a solve and its gradients, bit for bit; whether C computed them; and what was logged."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("windermere").addHandler(handler)
    _go_to(asked)
    field, end = solved()
    found = [end.detach(), *torch.autograd.grad(end.square().sum(), list(field.parameters()))]
    in_c = [compiled.library(real, "sphere") is not None for real in asked.get("kinds", ["float"])]
    return {"values": [x.numpy().tobytes().hex() for x in found], "in_c": all(in_c), "log": lines}


def solved() -> tuple[nn.Module, Tensor]:
    field, z = initialise(SphereField(2, width=8), 0), torch.linspace(-1, 1, 10).reshape(5, 2)
    end = solve(field, z, FixedStep("euler", step=1 / 8)).final
    assert isinstance(end, Tensor)
    return field, end


def warm_up() -> None:
    """PyTorch imports much only when it is first used; no library is loaded here, whatever the processes do."""
    os.environ["WINDERMERE_NATIVE"] = "0"
    solved()
    del os.environ["WINDERMERE_NATIVE"]
    compiled.library.cache_clear()


def _go_to(asked: dict[str, Any]) -> None:
    """Its surroundings, folder, umask and user; and how long a compiler may take."""
    os.environ.update(asked.get("variables", {}))
    for name in asked.get("without", ()):
        os.environ.pop(name, None)
    os.chdir(asked.get("folder", "/"))
    os.umask(asked.get("umask", 0o022))
    compiled.SECONDS = asked.get("seconds", compiled.SECONDS)
    if asked.get("user") is not None:
        os.setgroups([])
        os.setgid(asked["user"])
        os.setuid(asked["user"])


def begin(asked: dict[str, Any]) -> tuple[int, int]:
    """A process, and where its answer is to be read."""
    read, write = os.pipe()
    if child := os.fork():
        os.close(write)
        return child, read
    try:
        os.write(write, json.dumps(answer(asked)).encode())
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def end(child: int, read: int) -> dict[str, Any]:
    with open(read, "rb") as file:
        said = file.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {"code": code, **json.loads(said or b"{}")}


if __name__ == "__main__":
    torch.set_num_threads(1)
    warm_up()
    for line in sys.stdin:
        begun = [begin(asked) for asked in json.loads(line)]
        print(json.dumps([end(*process) for process in begun]), flush=True)
