"""The fan of the paper's Figure 3: tied at a step of 10^-2.5, a flow at 10^-4.5, each with its best line as head."""

import time

import torch
from torch import nn

import windermere as wm
from benchmarks.measuring import Bar, keep, show
from tests.auditing.test_known_cases import Fan, separating_head


def verdict(exponent: float) -> tuple[wm.Verdict, float]:
    corners = torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    noise = 0.001 * torch.randn(4, 100, 2, generator=torch.Generator().manual_seed(0))
    x, y = (corners[:, None] + noise).flatten(0, 1), torch.tensor([0, 0, 1, 1]).repeat_interleave(100)
    block = wm.ODEBlock(Fan(), wm.FixedStep("euler", step=10**exponent))
    model = nn.Sequential(block, separating_head(block, x, y))
    begun = time.perf_counter()
    return wm.audit(model, (x, y), evidence=exponent > -3), time.perf_counter() - begun


def run() -> list[Bar]:
    found = {exponent: verdict(exponent) for exponent in (-2.5, -4.5)}
    rows = {f"h = 10^{e}": f"{v.sentence} ({seconds:.0f} s)" for e, (v, seconds) in found.items()}
    show("The fan of Figure 3", rows)
    keep("known_cases", {"outcomes": {str(e): str(v.outcome) for e, (v, _) in found.items()}})
    right = (found[-2.5][0].outcome == "TIED") + (found[-4.5][0].outcome == "FLOW")
    return [Bar(name="right answers for the fan of Figure 3", measured=right, limit=2, at_least=True)]
