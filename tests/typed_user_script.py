"""A script as a user writes it, in the style of the docs: `mypy --strict` has nothing against it (test_types.py)."""

import torch
from torch import Tensor, nn

import windermere as wm

x, y = torch.randn(32, 2), torch.randint(2, (32,))
field = wm.Autonomous(nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2)))

solution = wm.solve(field, x, wm.FixedStep("euler", step=1 / 8), times=(0, 0.5, 1), record=True)
shape: torch.Size = solution.final.shape
path: Tensor | None = solution.trajectory.states if solution.trajectory is not None else None
first, second = wm.solve(lambda t, z: (z[1], -z[0]), (x, x), wm.Adaptive("dopri54", tolerance=1e-4)).final
energy: Tensor = first.square() + second.square()

controller = wm.SteadySteps(train="midpoint", check="rk4")
state = controller.start(wm.initial_step(field, x, order=2))
block, head = wm.ODEBlock(field, controller.solver(state)), nn.Linear(2, 2)
model = nn.Sequential(block, head)


def features(z: Tensor) -> Tensor:
    return block(z)


def score(solver: wm.FixedStep) -> wm.Score:
    with torch.no_grad(), wm.using(model, solver), wm.counting() as count:
        checked = head(features(x))
    accuracy = (checked.argmax(1) == y).float().mean()
    return wm.Score(value=accuracy, distance=wm.moved_mass(head(features(x)), checked), evaluations=count.forward)


state = wm.review(controller, state, wm.Score(value=0.5), score)
block.solver = controller.solver(state)
verdict: wm.Verdict = wm.audit(model, (x, y))
print(shape, energy.mean(), block.solver.precision, verdict.outcome)
