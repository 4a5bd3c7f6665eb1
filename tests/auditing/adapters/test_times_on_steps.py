"""Output times at the ends of steps lie there, whichever dtype has rounded them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchdiffeq
from torch import Tensor

import windermere as wm
from tests.auditing.test_known_cases import Rotation
from windermere.auditing import Verdict

POINTS = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))


def audited(odeint: Callable[..., Any], dtype: torch.dtype) -> Verdict:
    times = torch.linspace(0, 10, 101, dtype=dtype)

    def model(x: Tensor) -> Any:
        return odeint(Rotation(1.0), x, times, method="euler", options={"step_size": 0.1}).transpose(0, 1)

    return wm.audit(model, (POINTS, model(POINTS) + 0.01), metric="mse", evidence=False)


@pytest.mark.parametrize("odeint", [torchdiffeq.odeint, wm.odeint])
def test_the_verdict_looks_at_the_same_solvers_whichever_dtype_has_rounded_the_times(
    odeint: Callable[..., Any],
) -> None:
    single, double = (audited(odeint, dtype) for dtype in (torch.float32, torch.float64))
    looked_at = [line.solver for line in single.table if line.counts]
    assert looked_at == [line.solver for line in double.table if line.counts]
    assert "rk4, h = 1/10" in looked_at
    assert not any("between steps" in note for note in single.notes)
