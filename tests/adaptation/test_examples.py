"""The examples run to their end, only shorter: one of them as a reader would run it, the others in this process."""

import os
import subprocess
import sys
import warnings
from collections.abc import Callable

import pytest

from tests.processes import ROOT


def printed(name: str, *, iterations: int) -> str:
    """By a process of its own."""
    command = [sys.executable, str(ROOT / "examples" / name), "--iterations", str(iterations)]
    quick = {**os.environ, "XLA_FLAGS": "--xla_backend_optimization_level=0"}  # or JAX compiles for most of the time
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, env=quick)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check(text: str, reason: str) -> None:
    lines = [line for line in text.splitlines() if "step" in line]
    assert [int(line.split()[0]) for line in lines] == [20, 40, 60]
    assert all("->" in line and reason in line for line in lines)


def test_a_torchdiffeq_loop_adapts_its_step(example: Callable[..., str]) -> None:
    check(example("torchdiffeq_adaptation.py", "--iterations", 60), "distance")


def test_a_diffrax_loop_adapts_its_step_without_a_torch_model() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("jax")
        pytest.importorskip("diffrax")
    check(printed("diffrax_adaptation.py", iterations=60), "scores")


def test_a_torchdiffeq_model_trained_with_two_euler_steps_is_tied_to_them(example: Callable[..., str]) -> None:
    assert example("torchdiffeq_audit.py", "--iterations", 300).startswith("TIED to its solver: ")


def test_a_continuous_flow_of_zukos_is_audited(example: Callable[..., str]) -> None:
    pytest.importorskip("zuko")
    assert example("zuko_audit.py", "--iterations", 5).startswith("FLOW: ")


def test_a_likelihood_of_flow_matching_at_its_default_is_too_good(example: Callable[..., str]) -> None:
    pytest.importorskip("flow_matching")
    *_, last = example("flow_matching_likelihood.py", "--iterations", 400).splitlines()
    assert last.startswith("It claims +0.")
