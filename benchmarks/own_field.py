"""A field of one's own, a network of linear layers and tanh: forward and backward pass, on one core.

Windermere solves it in C where it is a `wm.Autonomous` of an `nn.Sequential`, and through PyTorch as any other module.
Beside it: torchdiffeq, and with JAX diffrax and a hand-written `lax.scan`, each in its fastest form.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import torch
from torch import Tensor, nn
from torchdiffeq import odeint, odeint_adjoint

import windermere as wm
from benchmarks.measuring import Bar, keep, show, side_by_side
from benchmarks.peers_jax import Rate, Solve, diffrax_solves, scans
from benchmarks.peers_work import Work

BATCH, STEPS, TOLERANCE, OUTPUTS = 128, 64, 1e-4, 101
OURS = "Windermere, linear layers"
Pass: TypeAlias = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    work: Work
    width: int = 32
    outputs: int = 2

    def __str__(self) -> str:
        more = f", {self.outputs} output times" if self.outputs > 2 else ""
        return f"2-{self.width}-{self.width}-2: {self.work}{more}"


EULER, DOPRI54 = Work(method="euler", steps=STEPS), Work(method="dopri54", tolerance=TOLERANCE)
CASES = (
    *(Case(EULER, width) for width in (32, 128)),
    *(Case(DOPRI54, width) for width in (32, 128)),
    Case(DOPRI54, outputs=OUTPUTS),
    Case(Work(method="dopri54", tolerance=TOLERANCE, adjoint=True)),
)


class Other(nn.Module):
    """A field like any other: Windermere knows nothing of it."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, t: Tensor, z: Tensor) -> Any:
        return self.network(z)


def contenders(case: Case, network: nn.Sequential, x: Tensor) -> Iterator[tuple[str, Pass]]:
    """Names, some of them more than once, and passes."""
    gradient, times = "adjoint" if case.work.adjoint else "backprop", torch.linspace(0, 1, case.outputs)
    for name, field in ((OURS, wm.Autonomous(network)), ("Windermere, any other module", Other(network))):
        settings: Any = {"times": times.tolist(), "gradient": gradient}
        yield name, _there_and_back(wm.ODEBlock(field, case.work.solver, **settings), x)
    other, method = Other(network), {"euler": "euler", "dopri54": "dopri5"}[case.work.method]
    precision: Any = {"rtol": case.work.tolerance, "atol": case.work.tolerance}
    if case.work.steps is not None:
        precision = {"options": {"step_size": 1 / case.work.steps}}
    solve = odeint_adjoint if case.work.adjoint else odeint
    yield "torchdiffeq", _there_and_back(lambda x: solve(other, x, times, method=method, **precision)[-1], x)
    if case.outputs == 2:
        for library, solves in (("diffrax", diffrax_solves(case.work)), ("lax.scan", scans(case.work))):
            for form in solves.values():
                yield library, _with_jax(form, network, x)


def _there_and_back(solve: Callable[[Tensor], Any], x: Tensor) -> Pass:
    return lambda: solve(x).square().mean().backward()


def _with_jax(solve: Solve, network: nn.Sequential, x: Tensor) -> Pass:
    start = jnp.asarray(x.numpy())
    linear = [layer for layer in network if isinstance(layer, nn.Linear)]
    layers = [tuple(jnp.asarray(p.detach().numpy()) for p in (layer.weight, layer.bias)) for layer in linear]
    gradient = jax.jit(jax.grad(lambda layers: (solve(_rate(layers), start) ** 2).mean()))
    return lambda: jax.block_until_ready(gradient(layers))


def _rate(layers: Any) -> Rate:
    def rate(layers: Any, z: Any) -> Any:
        for k, (weight, bias) in enumerate(layers):
            z = (jnp.tanh(z) if k else z) @ weight.T + bias
        return z

    return jax.tree_util.Partial(rate, layers)


def measure(case: Case, rounds: int) -> dict[str, float]:
    """Seconds of each library's fastest form."""
    torch.manual_seed(0)
    tanh, n = nn.Tanh, case.width
    network = nn.Sequential(nn.Linear(2, n), tanh(), nn.Linear(n, n), tanh(), nn.Linear(n, 2))
    found = list(contenders(case, network, torch.randn(BATCH, 2)))
    trial = side_by_side({str(k): go for k, (_, go) in enumerate(found)}, rounds=5, lead=1, clock=time.process_time)
    best: dict[str, int] = {}
    for k, (name, _) in enumerate(found):
        if name not in best or trial[str(k)] < trial[str(best[name])]:
            best[name] = k
    passes = {name: found[k][1] for name, k in best.items()}
    return side_by_side(passes, rounds=rounds, lead=1, clock=time.process_time)


def run(*, rounds: int = 40) -> list[Bar]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    seconds: dict[str, Mapping[str, float]] = {str(case): measure(case, rounds) for case in CASES}
    torch.set_num_threads(threads)
    for case, found in seconds.items():
        show(f"A field of one's own, ms: {case}", {name: f"{1e3 * s:.2f}" for name, s in found.items()})
    keep("own_field", {"seconds": seconds})
    return [
        Bar(name=f"{case}, torchdiffeq", measured=found["torchdiffeq"] / found[OURS], limit=1, at_least=True, unit="x")
        for case, found in seconds.items()
    ]
