"""The examples run as a reader would run them, only shorter."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def printed(name: str, *, iterations: int) -> list[str]:
    command = [sys.executable, str(EXAMPLES / name), "--iterations", str(iterations)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def decisions(name: str) -> list[str]:
    return [line for line in printed(name, iterations=60) if "step" in line]


def check(lines: list[str], reason: str) -> None:
    assert [int(line.split()[0]) for line in lines] == [20, 40, 60]
    assert all("->" in line and reason in line for line in lines)


def test_a_torchdiffeq_loop_adapts_its_step() -> None:
    check(decisions("torchdiffeq_adaptation.py"), "distance")


def test_a_diffrax_loop_adapts_its_step_without_a_torch_model() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("jax")
        pytest.importorskip("diffrax")
    check(decisions("diffrax_adaptation.py"), "scores")


def test_a_torchdiffeq_model_trained_with_two_euler_steps_is_tied_to_them() -> None:
    assert printed("torchdiffeq_audit.py", iterations=300)[0].startswith("TIED to its solver: ")


def test_a_continuous_flow_of_zukos_is_audited() -> None:
    pytest.importorskip("zuko")
    assert printed("zuko_audit.py", iterations=5)[0].startswith("FLOW: ")


def test_a_likelihood_of_flow_matching_at_its_default_is_too_good() -> None:
    pytest.importorskip("flow_matching")
    *_, last = printed("flow_matching_likelihood.py", iterations=400)
    assert last.startswith("It claims +0.")
