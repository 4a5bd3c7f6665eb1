"""Kernels in a process of their own: by Triton's interpreter, which needs no GPU, and on a GPU where there is one.

Triton chooses between compiling and interpreting when it is first imported, so it must be told before.
"""

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.processes import ROOT, surroundings
from windermere.paper.fast.fused import has_triton

ACCURACY = 2e-6
"""Of float32, relative to the norm: a few roundings."""
ON_GPU = {"tf32": 2e-3, "tf32x3": 1e-5}
"""Where tensor cores make float32 of smaller numbers; the interpreter computes in float32 itself."""
needs_triton = pytest.mark.skipif(not has_triton(), reason="the kernels need Triton 3.6 or newer")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]


def accuracy(device: str, precision: str) -> float:
    return ON_GPU.get(precision, ACCURACY) if device == "cuda" else ACCURACY


def run_kernels(module: str, cases: dict[str, Any], device: str, folder: Path) -> Any:
    """What the module makes of all these cases."""
    given, made = folder / "cases.pt", folder / "results.pt"
    torch.save(cases, given)
    command = [sys.executable, "-m", f"tests.fast.{module}", str(given), str(made), device]
    environment = surroundings(TRITON_INTERPRET="1" if device == "cpu" else "0")
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return torch.load(made)


def answer(results: Callable[[Any], Any]) -> None:
    """The other end, in that process."""
    given, made, device = sys.argv[1:]
    cases = torch.load(given, weights_only=False)
    torch.save({name: moved(results(moved(case, device)), "cpu") for name, case in cases.items()}, made)


def moved(value: Any, device: str) -> Any:
    """The tensors in it on another device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {name: moved(entry, device) for name, entry in value.items()}
    return type(value)(moved(entry, device) for entry in value) if type(value) in (list, tuple) else value
