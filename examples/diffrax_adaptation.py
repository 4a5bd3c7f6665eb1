"""A diffrax model trained in JAX, whose step is adapted while it trains: the controller needs no torch model."""

import argparse

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jax.example_libraries.optimizers import adam

import windermere as wm
from windermere.paper.data import load

parser = argparse.ArgumentParser()
parser.add_argument("--iterations", type=int, default=800)
iterations = parser.parse_args().iterations

METHODS = {"euler": diffrax.Euler(), "midpoint": diffrax.Midpoint()}
data = load("sphere2").train
inputs, labels = jnp.pad(data.inputs.numpy(), ((0, 0), (0, 1))), jnp.asarray(data.labels.numpy())
keys = jax.random.split(jax.random.PRNGKey(0), 3)
model = (eqx.nn.MLP(3, 3, 64, 2, key=keys[0]), eqx.nn.Linear(3, 2, key=keys[1]))
weights, static = eqx.partition(model, eqx.is_inexact_array)
begin, update, current = adam(1e-3)


def forward(weights, x, method, step):
    """The logits of a batch. The step is an array: for every new float JAX would compile anew."""
    network, head = eqx.combine(weights, static)
    term = diffrax.ODETerm(lambda t, z, args: jax.vmap(network)(z))
    solution = diffrax.diffeqsolve(term, METHODS[method], 0.0, 1.0, step, x, max_steps=512)
    return jax.vmap(head)(solution.ys[-1])


def loss(weights, x, y, method, step):
    logits = forward(weights, x, method, step)
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1).mean(), logits


gradient = jax.jit(jax.grad(loss, has_aux=True), static_argnames="method")
predict = jax.jit(forward, static_argnames="method")
update = jax.jit(update)  # as it is, it compiles anew in each iteration


def score(logits, y):
    return wm.Score(value=float((logits.argmax(axis=1) == y).mean()))


controller = wm.StepAdaptation(train="euler", check="midpoint", every=20)
state, optimizer, key = controller.start(0.05), begin(weights), keys[2]

for iteration in range(1, iterations + 1):
    key, drawn = jax.random.split(key)
    chosen = jax.random.randint(drawn, (128,), 0, len(labels))
    x, y, weights = inputs[chosen], labels[chosen], current(optimizer)
    gradients, logits = gradient(weights, x, y, controller.train, jnp.asarray(state.precision))
    if iteration % controller.every == 0:

        def check(solver, weights=weights, x=x, y=y):
            return score(predict(weights, x, solver.method, jnp.asarray(solver.step)), y)

        state = wm.review(controller, state, score(logits, y), check)
        done = state.decision
        print(f"{iteration:5d}  accuracy {done.trained:.3f}  step {done.before:.4f} -> {done.after:.4f}  {done.reason}")
    optimizer = update(iteration, gradients, optimizer)
