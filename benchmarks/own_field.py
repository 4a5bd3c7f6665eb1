"""Fields of one's own: forward and backward pass, on one core.

A network of the state and the time (2-64-64-2, tanh, batch 128) with Euler steps, with dopri5 and by the adjoint; a
latent ODE (20-100-100-20, ELU, batch 50) at 100 times; and a continuous normalising flow, with the exact trace by
autograd inside the field (batch 512). Windermere solves them in C, and beside that step by step through PyTorch; beside
it torchdiffeq, and with JAX diffrax and a hand-written `lax.scan`, each in its fastest form.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torchdiffeq import odeint, odeint_adjoint

import windermere as wm
from benchmarks.measuring import Bar, keep, show, side_by_side
from benchmarks.users_fields import CNF, Latent, TimeMLP

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import diffrax
    import jax
    import jax.numpy as jnp

STEPS, OURS, SLOW = 64, "Windermere", "Windermere, step by step"
Pass: TypeAlias = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    name: str
    kind: Callable[[], Any]
    state: tuple[tuple[int, int], ...]
    """The shapes of the state's parts."""
    tolerances: tuple[float, float] | None = (1e-5, 1e-5)
    """Relative and absolute; None for Euler steps."""
    adjoint: bool = False
    outputs: int = 2
    bar: float = 1.0
    """What Windermere may take of the time of the fastest in JAX, or where there is none of torchdiffeq's."""


CASES = (
    Case(f"time MLP, {STEPS} Euler steps", TimeMLP, ((128, 2),), None),
    Case("time MLP, dopri5 at 1e-5", TimeMLP, ((128, 2),)),
    Case("time MLP, dopri5 at 1e-5, adjoint", TimeMLP, ((128, 2),), adjoint=True),
    Case("latent, dopri5 at 1e-3, 100 times", Latent, ((50, 20),), (1e-3, 1e-4), outputs=100),
    Case("flow, dopri5 at 1e-5, adjoint", CNF, ((512, 2), (512, 1)), adjoint=True, bar=0.55),
)


def contenders(case: Case) -> Iterator[tuple[str, Pass]]:
    """Names, some of them more than once, and passes."""
    torch.manual_seed(0)
    field, parts = case.kind(), tuple(torch.randn(shape) for shape in case.state)
    z, times = parts if len(parts) > 1 else parts[0], torch.linspace(0, 1, case.outputs)
    solver: Any = wm.FixedStep("euler", step=1 / STEPS)
    settings: Any = {"method": "euler", "options": {"step_size": 1 / STEPS}}
    if case.tolerances is not None:
        rtol, atol = case.tolerances
        solver, settings = (
            wm.Adaptive("dopri54", rtol=rtol, atol=atol),
            {"method": "dopri5", "rtol": rtol, "atol": atol},
        )
    gradient: Any = "adjoint" if case.adjoint else "backprop"
    solve = odeint_adjoint if case.adjoint else odeint
    for name, fast in ((OURS, True), (SLOW, False)):
        yield name, _ours(lambda: wm.solve(field, z, solver, times.tolist(), gradient=gradient).states, fast)
    yield "torchdiffeq", lambda: _back(solve(field, z, times, **settings))
    if len(parts) == 1:
        yield from _in_jax(case, field.net, parts[0])


def _ours(solved: Callable[[], Any], fast: bool) -> Pass:
    def go() -> None:
        with wm.fast_paths(fast):
            _back(solved())

    return go


def _back(states: Any) -> None:
    whole = states if isinstance(states, Tensor) else torch.cat(states, dim=-1)
    whole.square().mean().backward()


def _in_jax(case: Case, network: nn.Sequential, x: Tensor) -> Iterator[tuple[str, Pass]]:
    linear = [layer for layer in network if isinstance(layer, nn.Linear)]
    layers = [tuple(jnp.asarray(p.detach().numpy()) for p in (layer.weight, layer.bias)) for layer in linear]
    start, rate = jnp.asarray(x.numpy()), _latent if case.kind is Latent else _with_time

    def passing(solve: Callable[[Any], Any]) -> Pass:
        gradient = jax.jit(jax.grad(lambda layers: (solve(layers) ** 2).mean()))
        return lambda: jax.block_until_ready(gradient(layers))

    def euler(layers: Any) -> Any:
        def step(z: Any, t: Any) -> Any:
            return z + rate(t, z, layers) / STEPS, None

        return jnp.stack([start, jax.lax.scan(step, start, jnp.arange(STEPS) / STEPS)[0]])

    if case.tolerances is None:
        yield "lax.scan", passing(euler)
    forms = (
        [diffrax.BacksolveAdjoint()] if case.adjoint else [diffrax.RecursiveCheckpointAdjoint(n) for n in (None, 32)]
    )
    for form in forms:
        yield "diffrax", passing(partial(_by_diffrax, case, rate, start, form))


def _by_diffrax(case: Case, rate: Any, start: Any, form: Any, layers: Any) -> Any:
    method: Any
    control: Any
    first: float | None
    method, control, first = diffrax.Euler(), diffrax.ConstantStepSize(), 1 / STEPS
    if case.tolerances is not None:
        method, control, first = diffrax.Dopri5(), diffrax.PIDController(*case.tolerances), None
    saved = diffrax.SaveAt(ts=jnp.linspace(0, 1, case.outputs))
    term, named = diffrax.ODETerm(rate), {"saveat": saved, "stepsize_controller": control, "max_steps": 256}
    return diffrax.diffeqsolve(term, method, 0.0, 1.0, first, start, args=layers, adjoint=form, **named).ys


def _with_time(t: Any, z: Any, layers: Any) -> Any:
    time = jnp.broadcast_to(t, (z.shape[0], 1)).astype(z.dtype)
    return _network(layers, jnp.concatenate([z, time], axis=1), jnp.tanh)


def _latent(t: Any, z: Any, layers: Any) -> Any:
    return _network(layers, z, jax.nn.elu)


def _network(layers: Any, z: Any, activation: Any) -> Any:
    for k, (weight, bias) in enumerate(layers):
        z = (activation(z) if k else z) @ weight.T + bias
    return z


def measure(case: Case, rounds: int) -> dict[str, float]:
    """Seconds of each library's fastest form."""
    found = list(contenders(case))
    trial = side_by_side({str(k): go for k, (_, go) in enumerate(found)}, rounds=3, lead=1, clock=time.process_time)
    best: dict[str, int] = {}
    for k, (name, _) in enumerate(found):
        if name not in best or trial[str(k)] < trial[str(best[name])]:
            best[name] = k
    passes = {name: found[k][1] for name, k in best.items()}
    return side_by_side(passes, rounds=rounds, lead=1, clock=time.process_time)


def run(*, rounds: int = 20) -> list[Bar]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    seconds: dict[str, Mapping[str, float]] = {case.name: measure(case, rounds) for case in CASES}
    torch.set_num_threads(threads)
    for case, found in seconds.items():
        show(f"A field of one's own, ms: {case}", {name: f"{1e3 * s:.2f}" for name, s in found.items()})
    keep("own_field", {"seconds": seconds})
    return [_bar(case, seconds[case.name]) for case in CASES]


def _bar(case: Case, found: Mapping[str, float]) -> Bar:
    others = [s for name, s in found.items() if name in ("diffrax", "lax.scan")] or [found["torchdiffeq"]]
    return Bar(
        name=f"{case.name}, beside the fastest", measured=found[OURS] / min(others), limit=case.bar, at_least=False
    )
