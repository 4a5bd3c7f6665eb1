"""The adaptive kernels, for `kernels.run_kernels`."""

from typing import Any, Literal

import torch

from tests.paper.fast.interpreted import let_the_interpreter_count, let_the_interpreter_remember
from tests.paper.fast.kernels import answer
from windermere.paper.architectures import NAMES, SphereField, spheres_of
from windermere.paper.fast import fused_adaptive, spheres
from windermere.paper.fast.fused_adaptive import Launch, adapt_on_device
from windermere.paper.stacked import StackedField
from windermere.solvers import Problem, solve
from windermere.solvers.layout import lay_out

GRADIENTS: tuple[Literal["backprop", "adjoint"], ...] = ("backprop", "adjoint")


def results(case: dict[str, Any]) -> dict[str, Any] | None:
    """The end state, its cost, the accepted steps, and the gradients of its product with a cotangent. Of a quiet case
    the end state alone, without gradients."""
    launch, fused_adaptive.STEPS_AT_FIRST = Launch(precision=case["precision"]), case["room"]
    start, *weights = (x.clone().requires_grad_() for x in (case["z"], *case["weights"]))
    layout = lay_out(start, members=len(start), samples=False)
    field = SphereField(start.shape[-1], weights[1].shape[1])
    problem = Problem(field, field, None, start, layout, tuple(case["solvers"]), tuple(case["times"]))
    with torch.set_grad_enabled(not case.get("quiet")):
        found = adapt_on_device(problem, weights, launch)
    if found is None:
        return None
    if case.get("quiet"):
        return {"end": found.end}
    sizes = found.end.grad_fn.solve.sizes  # type: ignore[union-attr]
    gradients = torch.autograd.grad((found.end * case["cotangent"]).sum(), [start, *weights])
    alone = solved_alone(case) if case.get("alone") else {}
    costs = [torch.from_numpy(n) for n in found.costs]
    return {
        "end": found.end.detach(),
        "costs": costs,
        "sizes": sizes,
        "gradients": gradients,
        "alone": alone,
    }


def solved_alone(case: dict[str, Any]) -> dict[str, Any]:
    """The first member by way of `solve`: the end and the evaluations, by gradient."""
    own = dict(zip(NAMES, (w[0].clone().requires_grad_() for w in case["weights"]), strict=True))
    points, channels = case["z"].shape[-1], len(own["lift.bias"])
    patched: Any = spheres
    patched.can_adapt = lambda *_: True
    patched.SphereKernels._asked = lambda _, problem: spheres_of(problem.field)
    field = StackedField(SphereField(points, channels), own)
    solutions = {g: solve(field, case["z"][0], case["solvers"][0], case["times"], gradient=g) for g in GRADIENTS}
    return {g: (torch.as_tensor(s.final).detach(), s.stats.evaluations) for g, s in solutions.items()}


if __name__ == "__main__":
    let_the_interpreter_count()
    let_the_interpreter_remember()
    answer(results)
