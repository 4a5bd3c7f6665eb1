"""Kernels in a process of their own: by Triton's interpreter, which needs no GPU, and on a GPU where there is one.

Triton chooses between compiling and interpreting when it is first imported, so it must be told before. Interpreted
kernels are slow: each case is computed when a test first asks for it, and once for all processes of a test session.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.processes import ROOT, locked, surroundings
from windermere.paper.fast.fused import has_triton

ACCURACY = 2e-6
"""Of float32, relative to the norm: a few roundings."""
ON_GPU = {"tf32": 2e-3, "tf32x3": 1e-5}
"""Where tensor cores make float32 of smaller numbers; the interpreter computes in float32 itself."""
needs_triton = pytest.mark.skipif(not has_triton(), reason="the kernels need Triton 3.6 or newer")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]


def quiet(cases: Mapping[str, Any]) -> dict[str, Any]:
    """The same cases, solved once more without gradients."""
    return {f"{name}, quiet": {**case, "quiet": True} for name, case in cases.items()}


def few(cases: Iterable[str], proving: Container[str]) -> list[Any]:
    """The cases that prove something, and as thorough tests the others, which do so again."""
    return [name if name in proving else pytest.param(name, marks=pytest.mark.thorough) for name in cases]


def accuracy(device: str, precision: str) -> float:
    return ON_GPU.get(precision, ACCURACY) if device == "cuda" else ACCURACY


@dataclass
class Kernels:
    """What a module makes of each of its cases, by name."""

    module: str
    cases: Mapping[str, Any]
    device: str
    folder: Path

    def __getitem__(self, name: str) -> Any:
        place = self.folder / f"{list(self.cases).index(name)}.pt"
        with locked(place):
            if not place.exists():
                self._compute(self.cases[name], place)
            return torch.load(place)

    def _compute(self, case: Any, place: Path) -> None:
        torch.save(case, given := place.with_suffix(".case"))
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        print(json.dumps([str(given), str(place)]), file=stdin, flush=True)
        assert stdout.readline() == "done\n", f"tests.paper.fast.{self.module} ended: see its standard error"

    @cached_property
    def _process(self) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", f"tests.paper.fast.{self.module}", self.device]
        environment = surroundings(TRITON_INTERPRET="1" if self.device == "cpu" else "0")
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return subprocess.Popen(command, cwd=ROOT, env=environment, text=True, **pipes)

    def close(self) -> None:
        if "_process" in vars(self):
            self._process.communicate()


@contextmanager
def kernels(module: str, cases: Mapping[str, Any], device: str, shared: Path) -> Iterator[Kernels]:
    """The cases of a module, whose results lie in the folder that all processes share."""
    folder = shared / f"{module}-{device}"
    folder.mkdir(exist_ok=True)
    made = Kernels(module, cases, device, folder)
    try:
        yield made
    finally:
        made.close()


def answer(results: Callable[[Any], Any]) -> None:
    """The other end, in that process."""
    (device,) = sys.argv[1:]
    for line in sys.stdin:
        given, place = json.loads(line)
        found = results(moved(torch.load(given, weights_only=False), device))
        torch.save(moved(found, "cpu"), f"{place}.tmp")
        os.replace(f"{place}.tmp", place)
        print("done", flush=True)


def moved(value: Any, device: str) -> Any:
    """The tensors in it on another device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {name: moved(entry, device) for name, entry in value.items()}
    return type(value)(moved(entry, device) for entry in value) if type(value) in (list, tuple) else value
