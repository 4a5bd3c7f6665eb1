"""The Python of the pages runs, block after block, with what the text around it takes for given."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import windermere as wm
from tests.processes import ROOT
from windermere.paper.data import load

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [
    "README",
    "docs/start",
    "docs/which-solver",
    "docs/faq",
    "docs/reference",
    "docs/from-torchdiffeq",
    "docs/runs",
]
SHORTER = {"range(300)": "range(30)", "range(1, 501)": "range(1, 101)"}
"""Trainings that a reader waits for, and a test need not."""


def velocity(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    return x * (1 - t.reshape(-1, 1).expand(len(x), 1))


def loop(velocity: Callable[..., torch.Tensor], x: torch.Tensor, steps: int) -> torch.Tensor:
    for k in range(steps):
        x = x + velocity(x, torch.full((len(x),), k / steps)) / steps
    return x


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """A small model and its data, as a reader would have them."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    data = load("sphere2").test
    x, y = data.inputs[:64], data.labels[:64]
    field = wm.Autonomous(nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2)))
    block = wm.ODEBlock(field, wm.FixedStep("euler", step=1 / 4))
    model = nn.Sequential(block, nn.Linear(2, 2))
    monkeypatch.setattr(wm, "load_run", lambda path, seed: model)
    known = {"field": field, "block": block, "model": model, "x": x, "y": y, "z0": x[:3], "test_loader": [(x, y)]}
    sampling = {"velocity": velocity, "loop": loop, "noise": torch.randn(64, 2), "real": torch.randn(64, 2)}
    return {"wm": wm, "torch": torch, "nn": nn, **known, **sampling}


def run_page(page: str, given: dict[str, Any]) -> None:
    blocks = BLOCK.findall((ROOT / f"{page}.md").read_text())
    assert blocks
    for code in blocks:
        for long, short in SHORTER.items():
            code = code.replace(long, short)
        exec(compile(code, page, "exec"), given)


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page: str, given: dict[str, Any]) -> None:
    run_page(page, given)


def test_the_python_about_adaptation_runs(given: dict[str, Any]) -> None:
    pytest.importorskip("lightning", reason="the page has the Lightning callback")
    run_page("docs/adaptation", {**given, "Trainer": lambda callbacks: callbacks})


def test_every_public_name_is_in_the_reference_from_its_docstring_and_in_an_example() -> None:
    page = (ROOT / "docs/reference.md").read_text()
    examples = "\n".join(BLOCK.findall(page))
    shown = set(re.findall(r"^\.\. auto\w+:: windermere\.(\w+)$", page, re.MULTILINE))
    aliases = {"METHODS", "Solver", "State", "__version__"}  # which have no docstring; the page says what they are
    assert shown == {*wm.__all__} - aliases
    assert not [name for name in wm.__all__ if not re.search(rf"\bwm\.{name}\b", examples)]
