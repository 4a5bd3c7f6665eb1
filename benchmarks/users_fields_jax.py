"""The fields of users_fields.py in JAX, solved by diffrax in several settings and by a hand-written `lax.scan`."""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from torch import nn

import windermere as wm
from benchmarks.users_fields import CNF, Job, Latent, OdeNet, TimeMLP

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import diffrax
    import jax
    import jax.numpy as jnp
    from jax import lax

jax.config.update("jax_default_matmul_precision", "highest")  # float32, as PyTorch's products are: not TF32
Field = Callable[[Any, Any, Any], Any]


def _layers(parameters: Any, x: Any, activation: Callable[[Any], Any]) -> Any:
    pairs = list(zip(parameters[::2], parameters[1::2], strict=True))
    for k, (weight, bias) in enumerate(pairs):
        x = x @ weight.T + bias
        x = activation(x) if k + 1 < len(pairs) else x
    return x


def _time_mlp(parameters: Any, t: Any, z: Any) -> Any:
    return _layers(parameters, jnp.concatenate([z, jnp.full_like(z[..., :1], t)], axis=-1), jnp.tanh)


def _latent(parameters: Any, t: Any, z: Any) -> Any:
    return _layers(parameters, z, jax.nn.elu)


def _cnf(parameters: Any, t: Any, state: Any) -> Any:
    z, _ = state

    def own(z: Any) -> Any:
        return _time_mlp(parameters, t, z)

    trace = jax.vmap(lambda z: jnp.trace(jax.jacfwd(own)(z)))(z)
    return own(z), -trace[:, None]


def _odenet(parameters: Any, t: Any, z: Any) -> Any:
    norms, convolutions = parameters[:6], parameters[6:]
    for k in range(2):
        x = jax.nn.relu(_group_norm(z, *norms[2 * k : 2 * k + 2]))
        x = jnp.concatenate([jnp.full_like(x[:, :1], t), x], axis=1)
        weight, bias = convolutions[2 * k : 2 * k + 2]
        z = lax.conv_general_dilated(x, weight, (1, 1), "SAME") + bias[:, None, None]
    return _group_norm(z, *norms[4:])


def _group_norm(z: Any, weight: Any, bias: Any) -> Any:
    grouped = z.reshape(z.shape[0], 32, -1)
    centred = grouped - grouped.mean(axis=2, keepdims=True)
    scaled = centred / jnp.sqrt((centred**2).mean(axis=2, keepdims=True) + 1e-5)
    return scaled.reshape(z.shape) * weight[:, None, None] + bias[:, None, None]


FIELDS: dict[type[nn.Module], Field] = {TimeMLP: _time_mlp, Latent: _latent, CNF: _cnf, OdeNet: _odenet}


def jax_contenders(job: Job) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Names, some of them more than once, and passes that give the loss and all gradients; the first call compiles."""
    field, start = FIELDS[job.field], job.start("cpu")  # type: ignore[index]
    parameters = [jnp.asarray(p.detach().numpy()) for p in job.made("cpu").parameters()]
    z = tuple(jnp.asarray(x.numpy()) for x in start) if isinstance(start, tuple) else jnp.asarray(start.numpy())
    for name, solve in _solves(job):

        def loss(given: Any, solve: Any = solve) -> Any:
            parts = jax.tree_util.tree_leaves(solve(field, *given))
            return sum((part**2).mean() for part in parts)

        compiled = jax.jit(jax.value_and_grad(loss))
        yield name, partial(_run, compiled, (parameters, z))


def _run(compiled: Callable[..., Any], given: Any) -> Any:
    return jax.block_until_ready(compiled(given))


def _solves(job: Job) -> Iterator[tuple[str, Callable[..., Any]]]:
    if isinstance(job.solver, wm.FixedStep):
        steps = round(1 / job.solver.step)
        for unroll in (1, 8):
            yield "lax.scan", partial(_scan, steps, unroll)
        fixed: dict[str, Any] = {"dt0": 1 / steps, "max_steps": steps}
        checkpointing = diffrax.RecursiveCheckpointAdjoint
        for adjoint in (checkpointing(checkpoints=steps), checkpointing(), diffrax.DirectAdjoint()):
            yield "diffrax", partial(_diffrax, job, diffrax.Euler(), adjoint=adjoint, **fixed)
        return
    control = diffrax.PIDController(rtol=job.solver.rtol, atol=job.solver.atol)
    adaptive: dict[str, Any] = {"dt0": None, "stepsize_controller": control}
    if job.adjoint:
        yield "diffrax", partial(_diffrax, job, diffrax.Dopri5(), adjoint=diffrax.BacksolveAdjoint(), **adaptive)
        return
    for adjoint in (diffrax.RecursiveCheckpointAdjoint(checkpoints=32), diffrax.RecursiveCheckpointAdjoint()):
        yield "diffrax", partial(_diffrax, job, diffrax.Dopri5(), adjoint=adjoint, max_steps=64, **adaptive)


def _scan(steps: int, unroll: int, field: Field, parameters: Any, z: Any) -> Any:
    h = 1 / steps

    def step(z: Any, t: Any) -> tuple[Any, None]:
        return z + h * field(parameters, t, z), None

    return lax.scan(step, z, jnp.asarray(np.arange(steps) * h, z.dtype), unroll=unroll)[0]


def _diffrax(job: Job, solver: Any, field: Field, parameters: Any, z: Any, **options: Any) -> Any:
    term = diffrax.ODETerm(lambda t, y, args: field(args, t, y))
    if job.outputs > 2:
        options["saveat"] = diffrax.SaveAt(ts=jnp.asarray(job.times))
    states = diffrax.diffeqsolve(term, solver, 0.0, 1.0, y0=z, args=parameters, throw=False, **options).ys
    return states if job.outputs > 2 else jax.tree_util.tree_map(lambda y: y[-1], states)
