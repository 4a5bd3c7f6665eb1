"""The torchdiffeq readme's model, in all its variations."""

from typing import Any

import torch
from torch import Tensor, nn
from torchdiffeq import odeint

from tests.auditing.adapters.models import TimeField, head
from windermere.nn import ODEBlock
from windermere.solvers import Solver


class ODENet(nn.Module):
    """The readme's way: integration times in the constructor, the last state goes on."""

    def __init__(self, solver: Any = odeint, times: Any = (0.0, 1.0), **how: Any) -> None:
        super().__init__()
        self.field, self.fc = TimeField(), head()
        self.integration_time = torch.tensor(times)
        self.solver, self.how = solver, how

    def forward(self, x: Tensor) -> Any:
        out = self.solver(self.field, x, self.integration_time.type_as(x), **self.how)
        return self.fc(out[-1])


def ours(model: ODENet, solver: Solver) -> nn.Sequential:
    """The same networks in an ODEBlock."""
    ends = tuple(model.integration_time.double().tolist())
    return nn.Sequential(ODEBlock(model.field, solver, times=(ends[0], ends[-1])), model.fc)


def stepping(method: str, step: float) -> dict[str, Any]:
    return {"method": method, "options": {"step_size": step}}
