"""diffrax's solves that land on every time that a model asks for, as a reference flow has to.

diffrax stops adaptive steps at given times. For fixed steps it has no such way: a controller of ours does that.
"""

from functools import cache
from importlib import import_module
from typing import Any

from windermere.solvers.solver import SAME_STEP


def asked_times(saveat: Any) -> Any:
    """All times of a `SaveAt(ts=...)`, None where it has none. Those of dense output are not known beforehand."""
    leaves = import_module("jax").tree_util.tree_leaves(saveat.subs, is_leaf=lambda part: hasattr(part, "steps"))
    asked = [part.ts for part in leaves if part.ts is not None]
    return import_module("jax.numpy").concatenate(asked) if asked else None


def stopping_at(controller: Any, times: Any) -> Any:
    """A step size controller that lands on these times too."""
    diffrax, jnp = import_module("diffrax"), import_module("jax.numpy")
    if hasattr(controller, "rtol"):
        return diffrax.PIDController(rtol=controller.rtol, atol=controller.atol, step_ts=times)
    grid = getattr(controller, "ts", None)
    return _controller()(times if grid is None else jnp.concatenate([times, grid.astype(times.dtype)]))


@cache
def _controller() -> Any:
    diffrax, jnp = import_module("diffrax"), import_module("jax.numpy")

    def wrap(self: Any, direction: Any) -> Any:
        return type(self)(jnp.sort(self.stops * direction))

    def init(self: Any, terms: Any, t0: Any, t1: Any, y0: Any, dt0: Any, *rest: Any) -> Any:
        state = (t1 - t0 if dt0 is None else dt0), t1
        return following(self, t0, *state), state

    def adapt_step_size(self: Any, t0: Any, t1: Any, *rest: Any) -> Any:
        state = rest[-1]
        return True, t1, following(self, t1, *state), False, state, diffrax.RESULTS.successful

    def following(self: Any, t: Any, step: Any, end: Any) -> Any:
        """Where the step from t ends: on the next stop, or before it. What is left but for rounding is no step."""
        rounding = 8 * jnp.finfo(jnp.result_type(t)).eps * jnp.maximum(abs(t), abs(end))
        stop = jnp.min(jnp.where(self.stops > t + rounding, self.stops, end))
        return jnp.where(t + step * (1 + SAME_STEP) >= stop, stop, t + step).astype(jnp.result_type(t))

    body = {"__annotations__": {"stops": Any}, "__module__": __name__, "wrap": wrap, "init": init}
    return type("Stopping", (diffrax.AbstractStepSizeController,), {**body, "adapt_step_size": adapt_step_size})
