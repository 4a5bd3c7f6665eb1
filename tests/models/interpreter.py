"""Kernels without a GPU, by Triton's interpreter: in a process of its own, as it is chosen when Triton is imported."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from tests.processes import ROOT, surroundings


def interpreted(module: str, cases: dict[str, Any], folder: Path) -> Any:
    """What the module makes of all these cases."""
    given, made = folder / "cases.pt", folder / "results.pt"
    torch.save(cases, given)
    command = [sys.executable, "-m", f"tests.models.{module}", str(given), str(made)]
    environment = surroundings(TRITON_INTERPRET="1")
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return torch.load(made)
