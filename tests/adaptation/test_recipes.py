"""The recipes of docs/adaptation.md run as they stand there, and end with what they are for."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import windermere as wm

PAGE = Path(__file__).parents[2] / "docs" / "adaptation.md"
FINE = wm.FixedStep.of("rk4", steps=64)

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="a source distribution has no docs/")


def ran(title: str) -> dict[str, Any]:
    """The names that a recipe leaves behind."""
    code = re.search(rf"^### {title}\n.*?^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(code[1], PAGE.name, "exec"), names)
    return names


@pytest.fixture(autouse=True)
def _generator_stays() -> Any:
    with torch.random.fork_rng():
        yield


def test_a_regressions_error_is_the_same_under_the_flow() -> None:
    names = ran("A regression")
    model, x, y = names["model"], names["inputs"], names["targets"]
    with torch.no_grad():
        own = (model(x) - y).square().mean().sqrt()
        with wm.using(model, FINE):
            flow = (model(x) - y).square().mean().sqrt()
    assert float(own) < 0.05
    assert 0.67 < float(flow / own) < 1.5


def test_a_likelihood_is_right_to_a_few_hundredths_of_a_nat() -> None:
    names = ran("A likelihood")
    with torch.no_grad():
        own = names["log_likelihoods"](names["x"])
        with wm.using(names["flow"], FINE):
            flow = names["log_likelihoods"](names["x"])
    assert float((own - flow).abs().mean()) < 0.05
    assert -2.5 < float(flow.mean()) < -1.5  # a ring of radius 1 and width 0.2 has -1.65 nats at best


def test_a_fine_tuned_samplers_samples_move_little_under_the_flow() -> None:
    names = ran("Fine-tuning a sampler")
    noise = torch.randn(1000, 2)
    with torch.no_grad():
        own = names["sampler"](noise)
        with wm.using(names["sampler"], FINE):
            flow = names["sampler"](noise)
    assert float(wm.relative_distance(own, flow)) < 0.1
    assert float(names["energy_distance"](flow, names["real"](1000))) < 0.05
