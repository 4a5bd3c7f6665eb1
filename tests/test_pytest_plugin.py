"""`assert_flow` in others' tests, as pytest runs them; whether the plugin is installed as an entry point or not."""

import json
from pathlib import Path

import pytest

from tests.processes import answer

pytest_plugins = ("pytester",)

PLUGIN = ("-p", "no:windermere", "-p", "windermere.pytest_plugin", "-p", "no:cacheprovider")
"""Whoever has it installed would load it twice."""
MODELS = """
import torch
from torch import nn
import windermere as wm

field = wm.Autonomous(nn.Linear(2, 2, bias=False))
with torch.no_grad():
    field.network.weight.copy_(torch.tensor([[0.0, -3.0], [3.0, 0.0]]))
angle = torch.linspace(0, 6.28, 300)
x = torch.stack([angle.cos(), angle.sin()], dim=1)

def rotating(steps):
    return nn.Sequential(wm.ODEBlock(field, wm.FixedStep.of("euler", steps=steps)), nn.Linear(2, 2))

def data(model):
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))
        model[1].bias.zero_()
        return x, model(x).argmax(dim=1)

coarse, fine = rotating(2), rotating(256)

def test_fine(assert_flow):
    assert assert_flow(fine, data(fine), evidence=False).outcome == "FLOW"

def test_coarse(assert_flow):
    assert_flow(coarse, data(coarse), evidence=False)

def test_allowed(assert_flow):
    assert assert_flow(coarse, data(coarse), allow=("TIED",), evidence=False).outcome == "TIED"

def test_misnamed(assert_flow):
    assert_flow(fine, data(fine), allow="TYED")
"""


@pytest.fixture
def tests(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(test_models=MODELS)
    return pytester


def test_a_model_that_is_no_flow_fails_with_its_sentence_and_leaves_the_report(tests: pytest.Pytester) -> None:
    done = tests.runpytest(*PLUGIN, "--windermere-reports=reports", "-k", "fine or coarse or allowed")
    done.assert_outcomes(passed=2, failed=1)
    shown = done.stdout.str()
    assert "TIED to its solver: accuracy 1.000 with euler, h = 1/2" in shown
    assert "report: " in shown
    assert "pytest_plugin.py" not in shown  # neither ours nor the audit's own lines
    assert shown.count("test_models.py:") <= 2
    (kept,) = tests.path.glob("reports/*.json")
    assert kept.name == "test_models.py-test_coarse.json"
    page = kept.with_suffix(".html")
    assert f"report: {page}, also .json and .png" in shown
    assert "test_models.py::test_coarse" in page.read_text()
    assert json.loads(kept.read_text())["outcome"] == "TIED"
    assert kept.with_suffix(".png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("ini", [None, "from-ini"])
def test_the_folder_is_the_ini_files_or_the_tests_own(tests: pytest.Pytester, ini: str | None) -> None:
    if ini is not None:
        tests.makeini(f"[pytest]\nwindermere_reports = {ini}\n")
    done = tests.runpytest(*PLUGIN, "--strict-config", "-k", "coarse", "--basetemp", str(tests.path / "temporary"))
    done.assert_outcomes(failed=1)
    (kept,) = tests.path.rglob("test_models*.json")
    assert kept.parent.name == ini or kept.parent.parent.name == "temporary"
    assert str(kept.with_suffix(".html")) in done.stdout.str()


def test_an_allowed_outcome_that_does_not_exist_is_named(tests: pytest.Pytester) -> None:
    done = tests.runpytest(*PLUGIN, "-k", "misnamed")
    assert "allow names outcomes (FLOW, TIED, " in done.stdout.str()
    assert "and TYED is none" in done.stdout.str()


def test_the_plugin_alone_loads_no_pytorch_and_no_drawing() -> None:
    script = "import sys, windermere.pytest_plugin; print({'torch', 'numpy', 'matplotlib'} & {*sys.modules})"
    assert answer(script) == "set()"


def test_it_is_an_entry_point_of_the_package() -> None:
    project = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    assert '[project.entry-points.pytest11]\nwindermere = "windermere.pytest_plugin"\n' in project
