"""The image walk, for `kernels.run_kernels`."""

from typing import Any, cast

import numpy as np
import torch
import triton.language as tl
from torch import Tensor

from tests.paper.fast.interpreted import let_the_interpreter_count, let_the_interpreter_remember
from tests.paper.fast.kernels import answer
from windermere.errors import SolverError
from windermere.paper.architectures import NAMES, ImageField
from windermere.paper.fast import images
from windermere.paper.fast.image_fused import image_walk
from windermere.paper.stacked import StackedField
from windermere.solvers import METHODS, solve


def results(case: dict[str, Any]) -> list[Any]:
    """The end state, the gradients of its product with a cotangent, and what an adaptive solve cost; or why it failed.
    Of a quiet case the end state alone, without gradients."""
    start, *weights = (x.clone().requires_grad_() for x in (case["z"], *case["weights"]))

    def walked() -> tuple[Tensor, ...]:
        if "solvers" not in case:
            return (image_walk(METHODS[case["method"]], case["grid"], start, weights, case["launch"]),)
        for name, value in (("can_walk_images", True), ("tuned", case["launch"])):
            setattr(images, name, lambda *_, value=value: value)
        solvers = case["solvers"] if start.ndim == 5 else case["solvers"][0]
        network = ImageField(weights[0].shape[-3], weights[0].shape[-4], arithmetic="bfloat16")
        field = StackedField(network, dict(zip(NAMES, weights, strict=True)))
        solution = solve(field, start, solvers, times=case["times"])
        stats = solution.stats
        counts = np.stack([stats.evaluations, stats.accepted, stats.rejected]).reshape(3, -1)
        return cast(Tensor, solution.final), torch.from_numpy(counts)

    if case.get("quiet"):
        with torch.no_grad():
            return list(walked()[:1])
    try:
        end, *counts = walked()
    except SolverError as error:
        return [str(error)]
    gradients = torch.autograd.grad((end * case["cotangent"]).sum(), [start, *weights])
    return [end.detach(), *gradients, *counts]


def let_the_interpreter_round() -> None:
    """Triton 3.6 interprets bfloat16 as integers: it multiplies these, and cuts digits off where GPUs round."""
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    dot, cast = InterpreterBuilder.create_dot, InterpreterBuilder.cast_impl

    def floats(x: Any) -> Any:
        if x.dtype.scalar != tl.bfloat16:
            return x
        bits = torch.from_numpy(np.ascontiguousarray(x.data).view(np.int16))
        return TensorHandle(bits.view(torch.bfloat16).float().numpy(), tl.float32)

    def rounded(self: Any, x: Any, to: Any) -> Any:
        if to.scalar != tl.bfloat16 or not (x.dtype.scalar == tl.float32 or x.dtype.scalar.is_int()):
            return cast(self, x, to)
        x = cast(self, x, tl.float32) if x.dtype.scalar.is_int() else x
        low = torch.from_numpy(np.ascontiguousarray(x.data)).bfloat16()
        return TensorHandle(low.view(torch.int16).numpy().view(np.uint16), tl.bfloat16)

    InterpreterBuilder.create_dot = lambda self, a, b, *more: dot(self, floats(a), floats(b), *more)
    InterpreterBuilder.cast_impl = rounded


if __name__ == "__main__":
    let_the_interpreter_count()
    let_the_interpreter_remember()
    let_the_interpreter_round()
    answer(results)
