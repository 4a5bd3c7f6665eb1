"""Networks that all libraries' models share, so that one can be compared with another."""

from typing import Any

import torch
from torch import Tensor, nn


class TimeField(nn.Module):
    """A small smooth network of state and time; t may be one number or one for each sample."""

    def __init__(self, width: int = 2, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.net = nn.Sequential(nn.Linear(width + 1, 16), nn.Tanh(), nn.Linear(16, width))

    def forward(self, t: Any, z: Tensor) -> Any:
        times = torch.as_tensor(t).to(z).reshape(-1, 1).expand(len(z), 1)
        return self.net(torch.cat([z, times], dim=1))


def head(seed: int = 1) -> nn.Linear:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Linear(2, 2)


def points(n: int = 7, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
