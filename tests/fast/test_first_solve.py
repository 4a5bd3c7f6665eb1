"""What a first solve, and a first network of the paper, bring into a process."""

import subprocess

from tests.processes import python

SOLVE = """
import sys
import torch
import windermere as wm
from windermere.paper.architectures import architecture

before = {*sys.modules}
class Field(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))

    def forward(self, t, z):
        with torch.enable_grad():
            z = z if z.requires_grad else z.detach().requires_grad_()
            k = self.net(z)
            (own,) = torch.autograd.grad(k[:, 0].sum(), z, create_graph=True)
        return k + (torch.zeros_like(z[:, :1]) + own[:, :1])


for fast in (True, False):
    for gradient in ("backprop", "adjoint"):
        with wm.fast_paths(fast):
            z = torch.ones(3, 2, requires_grad=True)
            wm.solve(Field(), z, wm.Adaptive("dopri54", tolerance=1e-3), gradient=gradient).final.sum().backward()
        assert z.grad is not None
architecture("sphere2", wm.FixedStep("euler", step=0.5))
print(*sorted({name.split(".")[0] for name in {*sys.modules} - before}))
"""


def test_no_first_solve_gradient_or_network_imports_a_computer_algebra() -> None:
    """PyTorch's own look at the shapes of given gradients imports one, which takes a second, and so does its way to
    leave weights undrawn."""
    with python("-c", SOLVE, stdout=subprocess.PIPE) as process:
        imported, _ = process.communicate(timeout=600)
    assert process.returncode == 0
    assert "sympy" not in imported.split()
