"""The types that users get: a script in the style of the docs passes `mypy --strict`, and a wrong one does not."""

import subprocess
import sys
from pathlib import Path

import windermere
from tests.processes import ROOT, python, surroundings

SCRIPT = ROOT / "tests" / "typed_user_script.py"
WRONG = """
import torch
from torch import Tensor, nn
import windermere as wm

x, rk4 = torch.ones(3, 2), wm.FixedStep("rk4", step=1 / 4)
steps, tolerances = wm.SteadySteps(train="midpoint", check="rk4"), wm.SteadyTolerances(train="dopri54")
block = wm.ODEBlock(wm.Autonomous(nn.Linear(2, 2)), rk4)
def score(solver: wm.FixedStep) -> wm.Score: return wm.Score(value=solver.step)

wm.solve(lambda t, z: z, (x, x), rk4).final.shape
first, second = wm.solve(lambda t, z: z, x, rk4).final.shape.missing
number: float = block(x)
wm.Score(value="0.5")
wm.review(tolerances, tolerances.start(), wm.Score(value=0.5), score)
"""
MISTAKES = {11, 12, 13, 14, 15}


def test_a_users_script_passes_a_strict_type_checker_and_a_wrong_one_does_not(tmp_path: Path) -> None:
    """In the checker's own cache, with the project's settings, which are strict: seconds after `make lint`."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(SCRIPT), str(wrong)]
    done = subprocess.run(command, cwd=ROOT, env=surroundings(), capture_output=True, text=True, check=False)
    errors = [line.split(":")[:2] for line in done.stdout.splitlines() if ": error:" in line]
    found = {
        name: {int(line) for path, line in errors if Path(path).name == name} for name in (SCRIPT.name, wrong.name)
    }
    assert found == {SCRIPT.name: set(), wrong.name: MISTAKES}, done.stdout + done.stderr


def test_the_script_runs() -> None:
    with python(str(SCRIPT), stdout=-1, stderr=-1) as process:
        out, err = process.communicate()
    assert not err
    assert out.startswith("torch.Size([32, 2])")


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(windermere.__file__).parent / "py.typed").exists()
