"""The work done with JAX: by diffrax, in several settings of which the best counts, and by a hand-written `lax.scan`.

A whole training step is one compiled function, members vmapped or one after the other inside it. Shapes: S members,
B samples.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from benchmarks.peers_work import LEARNING_RATE, Contender, Gradient, Work, weights
from windermere.solvers.tableaus import tableau

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import diffrax
    import jax
    import jax.numpy as jnp
    from jax import lax

Rate = Callable[[Any], Any]
Solve = Callable[[Rate, Any], Any]
PARTS = ("lift", "mix", "lower")


def jax_contenders(work: Work, x: Tensor, y: Tensor) -> Iterator[Contender]:
    """Every setting with the dense field; the first one also with convolutions, or with members one by one."""
    data = jnp.asarray(x.cpu().numpy()), jnp.asarray(y.cpu().numpy())
    for library, solves in (("diffrax", diffrax_solves(work)), ("lax.scan", scans(work))):
        for k, (form, solve) in enumerate(solves.items()):
            yield _contender(work, library, f"dense, {form}", partial(_loss, dense, solve), data)
            if k == 0 and work.members == 1:
                yield _contender(work, library, f"convolution, {form}", partial(_loss, convolution, solve), data)
            elif k == 0 and work.members <= 5:
                yield _contender(work, library, f"dense, one by one, {form}", partial(_loss, dense, solve), data, False)


def dense(own: dict[str, Any]) -> Rate:
    """The field of one member as products with dense matrices. (A pytree: BacksolveAdjoint refuses closures.)"""
    layers = [(_banded(own[f"0.field.{p}.weight"]), jnp.tile(own[f"0.field.{p}.bias"], 2)) for p in PARTS]
    return jax.tree_util.Partial(_multiplied, layers)


def _multiplied(layers: Any, z: Any) -> Any:
    (w1, b1), (w2, b2), (w3, b3) = layers
    return jax.nn.relu(jax.nn.relu(z @ w1 + b1) @ w2 + b2) @ w3 + b3


def _banded(weight: Any) -> Any:
    """As windermere.paper.fast.dense.banded, for two points."""
    out, into, width = weight.shape
    tap = np.arange(2)[:, None] - np.arange(2)[None, :] + width // 2
    taps = weight[..., tap.clip(0, width - 1)] * ((tap >= 0) & (tap < width))
    return taps.transpose(2, 1, 3, 0).reshape(2 * into, 2 * out)


def convolution(own: dict[str, Any]) -> Rate:
    return jax.tree_util.Partial(_convolved, own)


def _convolved(own: dict[str, Any], z: Any) -> Any:
    hidden = z[:, None, :]
    for k, part in enumerate(PARTS):
        hidden = jax.nn.relu(hidden) if k else hidden
        hidden = lax.conv_general_dilated(hidden, own[f"0.field.{part}.weight"], (1,), "SAME")
        hidden = hidden + own[f"0.field.{part}.bias"][:, None]
    return hidden[:, 0]


def scans(work: Work) -> dict[str, Solve]:
    if work.steps is None:
        return {}
    used, h = tableau(work.method), 1 / work.steps

    def solve(rate: Rate, z: Any, unroll: int, remat: bool) -> Any:
        def step(z: Any, _: None) -> tuple[Any, None]:
            rates: list[Any] = []
            for row in used.a:
                rates.append(rate(_moved(z, h, row, rates)))
            return _moved(z, h, used.b, rates), None

        return lax.scan(jax.checkpoint(step) if remat else step, z, None, length=work.steps, unroll=unroll)[0]

    forms = {"unroll=1": (1, False), "unroll=8": (8, False), "recomputed": (1, True)}
    return {form: partial(solve, unroll=min(u, work.steps), remat=r) for form, (u, r) in forms.items()}


def _moved(z: Any, h: float, row: Any, rates: list[Any]) -> Any:
    for weight, rate in zip(row, rates, strict=False):
        z = z + h * weight * rate if weight else z
    return z


class RK438(diffrax.AbstractERK):  # type: ignore[misc, unused-ignore]
    """The 3/8 rule, which diffrax lacks. Its error estimate is never asked for."""

    tableau: ClassVar[Any] = diffrax.ButcherTableau(
        a_lower=tuple(np.array(row) for row in tableau("rk4_38").a[1:]),
        b_sol=np.array(tableau("rk4_38").b),
        b_error=np.array(tableau("rk4_38").b) - np.array([1.0, 0, 0, 0]),
        c=np.array(tableau("rk4_38").c[1:]),
    )
    interpolation_cls: ClassVar[Any] = diffrax.ThirdOrderHermitePolynomialInterpolation.from_k

    def order(self, terms: Any) -> int:
        return 4


def diffrax_solves(work: Work) -> dict[str, Solve]:
    controls: dict[str, dict[str, Any]]
    if work.steps is None:
        tolerance: Any = work.tolerance
        control: dict[str, Any] = {"stepsize_controller": diffrax.PIDController(rtol=tolerance, atol=tolerance)}
        control["dt0"] = None
        if work.adjoint:
            return {"BacksolveAdjoint": partial(_diffrax, work, adjoint=diffrax.BacksolveAdjoint(), **control)}
        controls = {"": {**control, "max_steps": 64}}
    else:
        grid = jnp.linspace(0.0, 1.0, work.steps + 1)
        controls = {
            ", ConstantStepSize": {"dt0": 1 / work.steps, "max_steps": work.steps},
            ", StepTo": {"stepsize_controller": diffrax.StepTo(grid), "dt0": None, "max_steps": work.steps},
        }
    checkpointing = diffrax.RecursiveCheckpointAdjoint
    adjoints = {
        "RecursiveCheckpointAdjoint, all checkpoints": checkpointing(checkpoints=work.steps or 64),
        "RecursiveCheckpointAdjoint": checkpointing(),
        "DirectAdjoint": diffrax.DirectAdjoint(),
    }
    return {
        f"{name}{way}": partial(_diffrax, work, adjoint=adjoint, **options)
        for way, options in controls.items()
        for name, adjoint in adjoints.items()
    }


def _diffrax(work: Work, rate: Rate, z: Any, **options: Any) -> Any:
    made = {"euler": diffrax.Euler, "rk4_38": RK438, "dopri54": diffrax.Dopri5}[work.method]
    term = diffrax.ODETerm(lambda t, y, rate: rate(y))
    return diffrax.diffeqsolve(term, made(), 0.0, 1.0, y0=z, args=rate, throw=False, **options).ys[-1]


def _loss(field: Callable[[dict[str, Any]], Rate], solve: Solve, own: dict[str, Any], x: Any, y: Any) -> Any:
    logits = solve(field(own), x) @ own["2.weight"].T + own["2.bias"]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1).mean()


def _contender(
    work: Work, library: str, form: str, loss: Callable[..., Any], data: tuple[Any, Any], stacked: bool = True
) -> Contender:
    parameters = {name: jnp.asarray(tensor.cpu().numpy()) for name, tensor in weights(work).items()}

    def losses(parameters: Any) -> tuple[Any, Any]:
        if work.members > 1 and stacked:
            found = jax.vmap(loss, in_axes=(0, None, None))(parameters, *data)
        else:
            members = [{name: p[s] for name, p in parameters.items()} for s in range(work.members)]
            found = jnp.stack([loss(own, *data) for own in members])
        return found.sum(), found

    def train(state: Any) -> tuple[Any, Any]:
        parameters, first, second, count = state
        gradient, found = jax.grad(losses, has_aux=True)(parameters)
        return adam(parameters, gradient, first, second, count + 1), found

    begun = time.perf_counter()
    zeros = jax.tree_util.tree_map(jnp.zeros_like, parameters)
    state = (parameters, zeros, zeros, jnp.zeros((), jnp.int32))
    compiled = jax.jit(train).lower(state).compile()
    seconds = time.perf_counter() - begun

    def step() -> Any:
        nonlocal state
        state, found = compiled(state)
        return found if work.device != "cpu" else jax.block_until_ready(found)

    def graded() -> tuple[list[float], Gradient]:
        gradient, found = jax.jit(jax.grad(losses, has_aux=True))(parameters)
        return found.tolist(), {name: np.asarray(g).flatten() for name, g in gradient.items()}

    return Contender(library=library, form=form, step=step, graded=graded, compile_seconds=seconds)


def adam(parameters: Any, gradient: Any, first: Any, second: Any, count: Any) -> Any:
    """PyTorch's defaults."""
    mapped = jax.tree_util.tree_map
    first = mapped(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
    second = mapped(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)
    a, b = 1 - 0.9**count, 1 - 0.999**count
    moved = mapped(lambda p, m, v: p - LEARNING_RATE * (m / a) / (jnp.sqrt(v / b) + 1e-8), parameters, first, second)
    return moved, first, second, count
