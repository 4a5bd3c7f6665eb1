"""The fused walk, for `kernels.run_kernels`."""

from typing import Any

import torch
from torch import Tensor

from tests.paper.fast.kernels import answer
from windermere.paper.fast.fused import Launch, fused_walk
from windermere.solvers import METHODS


def results(case: dict[str, Any]) -> list[Tensor]:
    """The end state, and the gradients of its product with a cotangent in the start and in all weights."""
    start, *weights = (x.clone().requires_grad_() for x in (case["z"], *case["weights"]))
    launch = Launch(precision=case["precision"])
    end = fused_walk(METHODS[case["method"]], case["sizes"], case["counts"], start, weights, launch)
    gradients = torch.autograd.grad((end * case["cotangent"]).sum(), [start, *weights])
    with torch.no_grad():
        quiet = fused_walk(METHODS[case["method"]], case["sizes"], case["counts"], start, weights, launch)
    return [end.detach(), *gradients, quiet]


def let_the_interpreter_count() -> None:
    """Triton 3.6 reads a number from memory as an array of one, which NumPy from 2.4 on takes for no number."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched


if __name__ == "__main__":
    let_the_interpreter_count()
    answer(results)
