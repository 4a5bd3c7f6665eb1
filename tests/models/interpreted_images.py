"""`python -m tests.models.interpreted_images CASES RESULTS`: the image walk on the CPU, in a process of its own.

Triton chooses between compiling and interpreting when it is first imported, so it must be told before.
"""

import sys
from typing import Any

import numpy as np
import torch
import triton.language as tl
from torch import Tensor

from tests.models.interpreted import let_the_interpreter_count
from windermere.models.image_fused import image_walk
from windermere.solvers import METHODS


def results(case: dict[str, Any]) -> list[Tensor]:
    """The end state, the gradients of its product with a cotangent, and the end again without gradients."""
    start, *weights = (x.clone().requires_grad_() for x in (case["z"], *case["weights"]))
    arguments = (METHODS[case["method"]], case["grid"], start, weights, case["launch"])
    end = image_walk(*arguments)
    gradients = torch.autograd.grad((end * case["cotangent"]).sum(), [start, *weights])
    with torch.no_grad():
        quiet = image_walk(*arguments)
    return [end.detach(), *gradients, quiet]


def let_the_interpreter_multiply() -> None:
    """Triton 3.6 holds bfloat16 in integers, and multiplies these."""
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle, _convert_float

    dot = InterpreterBuilder.create_dot

    def floats(x: Any) -> Any:
        if x.dtype.scalar != tl.bfloat16:
            return x
        return TensorHandle(_convert_float(x.data, tl.bfloat16, tl.float32, None).view(np.float32), tl.float32)

    InterpreterBuilder.create_dot = lambda self, a, b, *more: dot(self, floats(a), floats(b), *more)


if __name__ == "__main__":
    let_the_interpreter_count()
    let_the_interpreter_multiply()
    cases = torch.load(sys.argv[1], weights_only=False)
    torch.save({name: results(case) for name, case in cases.items()}, sys.argv[2])
