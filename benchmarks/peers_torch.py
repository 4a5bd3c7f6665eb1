"""The work done with PyTorch: by Windermere as its training loop does it, by torchdiffeq, and by torchode.

The peers get the field as their users write it, with nn.Conv1d, and as the small dense matrices that Windermere makes
of it; members are solved one after the other, or stacked into one state. Shapes: S members, B samples.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from torchdiffeq import odeint, odeint_adjoint

import windermere as wm
from benchmarks.peers_work import LEARNING_RATE, Contender, Gradient, Work, model, weights
from windermere.paper.fast.dense import Layers, banded, evaluate, repeated
from windermere.paper.training import Ensemble
from windermere.paper.training.checkpoint import update
from windermere.paper.training.classifying import classify_and_differentiate

try:
    import torchode
except ImportError:  # as on the GPU's machine
    torchode = None

PARTS = ("lift", "mix", "lower")
TORCHDIFFEQ = {"euler": "euler", "rk4_38": "rk4", "dopri54": "dopri5"}
Solve = Callable[[Any, Tensor, tuple[Tensor, ...]], Tensor]
"""A field, the state it starts from, and the tensors that the field depends on."""


def torch_contenders(work: Work, x: Tensor, y: Tensor) -> Iterator[Contender]:
    yield windermere(work, x, y)
    for library, solves in (("torchdiffeq", torchdiffeq_solves(work)), ("torchode", torchode_solves(work))):
        for form, solve in solves.items():
            yield convolving(library, f"Conv1d{form}", work, solve, x, y)
            yield dense(library, f"dense{form}", work, solve, x, y)
    if work.tolerance is not None and not work.adjoint:
        yield windermere(work, x, y, control="sample")


def windermere(work: Work, x: Tensor, y: Tensor, control: str = "batch") -> Contender:
    """As the training loop does it."""
    solver = work.solver
    if control == "sample" and isinstance(solver, wm.Adaptive):
        solver = wm.Adaptive(work.method, tolerance=solver.rtol, control="sample")
    members = [_with_gradient(model(seed, solver), work).to(work.device) for seed in range(work.members)]
    ensemble = Ensemble(members)
    xs, ys = (v.expand(work.members, *v.shape) for v in (x, y))
    solvers = (solver,) * work.members

    def differentiate() -> Tensor:
        return classify_and_differentiate(ensemble, ensemble.features(xs, solvers), ys).losses

    parameters = {name: [tensor] for name, tensor in ensemble.tensors.items()}
    library = "windermere" if control == "batch" else "windermere, control by sample"
    made = _contender(library, "ensemble", differentiate, parameters, update)
    return replace(made, state=lambda: ensemble.tensors)


def _with_gradient(made: nn.Sequential, work: Work) -> nn.Sequential:
    cast(wm.ODEBlock, made[0]).gradient = "adjoint" if work.adjoint else "backprop"
    return made


def convolving(library: str, form: str, work: Work, solve: Solve, x: Tensor, y: Tensor) -> Contender:
    """The network as anyone would write it, for one member after the other."""
    made = [
        nn.ModuleDict({"0": nn.ModuleDict({"field": ConvField()}), "2": nn.Linear(2, 2)}).to(work.device)
        for _ in range(work.members)
    ]
    for s, member in enumerate(made):
        member.load_state_dict({name: tensor[s] for name, tensor in weights(work).items()})

    def logits() -> Tensor:
        ends = [solve(m["0"]["field"], x.unsqueeze(1), tuple(m["0"].parameters())) for m in made]  # type: ignore[index]
        return torch.stack([m["2"](end.flatten(1)) for m, end in zip(made, ends, strict=True)])

    parameters = {name: [dict(m.named_parameters())[name] for m in made] for name in weights(work)}
    return _contender(library, form, _by_autograd(logits, y), parameters)


class ConvField(nn.Module):
    """The paper's field as anyone would write it."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.mix, self.lower = nn.Conv1d(1, 32, 1), nn.Conv1d(32, 32, 3, padding=1), nn.Conv1d(32, 1, 1)

    def forward(self, t: Tensor, z: Tensor) -> Any:
        return self.lower(F.relu(self.mix(F.relu(self.lift(z)))))


class DenseField(nn.Module):
    """All members' fields as products with dense matrices: [S, B, 2], or [B, 2] for one member."""

    def __init__(self, layers: Layers) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return evaluate(self.layers, z)


def dense(library: str, form: str, work: Work, solve: Solve, x: Tensor, y: Tensor) -> Contender:
    tensors = {name: tensor.requires_grad_() for name, tensor in weights(work).items()}
    xs = x.expand(work.members, *x.shape) if work.members > 1 else x

    def logits() -> Tensor:
        layers = []
        for part in PARTS:
            weight, bias = tensors[f"0.field.{part}.weight"], tensors[f"0.field.{part}.bias"]
            layers += [banded(weight, 2), repeated(bias, 2)]
        used = layers if work.members > 1 else [layer.squeeze(0) for layer in layers]
        end = solve(DenseField(cast(Layers, tuple(used))), xs, tuple(used))
        return torch.baddbmm(
            tensors["2.bias"].unsqueeze(1), end.reshape(work.members, *x.shape), tensors["2.weight"].mT
        )

    return _contender(library, form, _by_autograd(logits, y), {name: [tensor] for name, tensor in tensors.items()})


def torchdiffeq_solves(work: Work) -> dict[str, Solve]:
    times, method = torch.tensor([0.0, 1.0], device=work.device), TORCHDIFFEQ[work.method]
    if work.steps is not None:
        options = {"step_size": 1 / work.steps}
        return {"": lambda field, z, _: odeint(field, z, times, method=method, options=options)[-1]}
    kept = {"rtol": work.tolerance, "atol": work.tolerance, "method": method}
    if not work.adjoint:
        return {"": lambda field, z, _: odeint(field, z, times, **kept)[-1]}

    def adjoint(field: Any, z: Tensor, tensors: tuple[Tensor, ...], norm: dict[str, str]) -> Tensor:
        return odeint_adjoint(field, z, times, adjoint_params=tensors, adjoint_options=norm, **kept)[-1]

    return {"": partial(adjoint, norm={}), ", seminorm": partial(adjoint, norm={"norm": "seminorm"})}


def torchode_solves(work: Work) -> dict[str, Solve]:
    """It knows Euler and dopri5, steps each sample by itself, and has states [B, features] only."""
    if torchode is None or work.method not in ("euler", "dopri54") or work.adjoint:
        return {}

    def solve(field: Any, z: Tensor, _: tuple[Tensor, ...]) -> Tensor:
        flat = z.reshape(-1, 2)
        term = torchode.ODETerm(lambda t, y: field(t, y.reshape(z.shape)).reshape(flat.shape), with_stats=False)
        if work.steps is not None:
            method, control = torchode.Euler(term), torchode.FixedStepController()
            first = torch.full((len(flat),), 1 / work.steps)
        else:
            method = torchode.Dopri5(term)
            control, first = torchode.IntegralController(work.tolerance, work.tolerance, term=term), None
        problem = torchode.InitialValueProblem(flat, torch.zeros(len(flat)), torch.ones(len(flat)), None)
        solver = torchode.AutoDiffAdjoint(method, control, backprop_through_step_size_control=False)
        return solver.solve(problem, dt0=first).ys[:, -1].reshape(z.shape)

    return {"": solve}


def _by_autograd(logits: Callable[[], Tensor], y: Tensor) -> Callable[[], Tensor]:
    """The losses of all members, whose gradients go to the parameters."""

    def differentiate() -> Tensor:
        found = logits()
        ys = y.expand(len(found), *y.shape)
        losses = F.cross_entropy(found.transpose(1, 2), ys, reduction="none").mean(dim=1)
        losses.sum().backward()
        return losses.detach()

    return differentiate


def _contender(
    library: str,
    form: str,
    differentiate: Callable[[], Tensor],
    parameters: Mapping[str, Sequence[Tensor]],
    update: Callable[[Optimizer], object] = lambda optimizer: optimizer.step(),
) -> Contender:
    tensors = [tensor for group in parameters.values() for tensor in group]
    optimizer = torch.optim.Adam(tensors, lr=LEARNING_RATE, fused=True)

    def backward() -> Tensor:
        for tensor in tensors:
            tensor.grad = None
        return differentiate()

    def graded() -> tuple[list[float], Gradient]:
        losses = backward().tolist()
        flat = {name: torch.cat([_gradient(p).flatten() for p in group]) for name, group in parameters.items()}
        return losses, {name: gradient.cpu().numpy().copy() for name, gradient in flat.items()}

    def step() -> Tensor:
        losses = backward()
        update(optimizer)
        return losses

    return Contender(library=library, form=form, step=step, graded=graded)


def _gradient(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
