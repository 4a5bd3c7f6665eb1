"""The names of PyTorch that the library asks for, and its file as it is where PyTorch lacks some of them."""

from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import pytest

from tests.torches import TORCH
from windermere import _torch_private

SOURCE = Path(_torch_private.__file__)
NAMES = [
    "torch._C._functorch.peek_interpreter_stack",
    "torch._C._functorch.get_interpreter_stack",
    "torch._C._functorch.is_legacy_batchedtensor",
    "torch._C._get_tracing_state",
    "torch._C._is_any_autocast_enabled",
    "torch._C._len_torch_dispatch_stack",
    "torch._C._len_torch_function_stack",
    "torch._C._get_function_stack_at",
    "torch.utils._device.DeviceContext",
    "torch.utils._python_dispatch.TorchDispatchMode",
    "torch._C._autograd._top_saved_tensors_default_hooks",
    "torch.autograd.graph._engine_run_backward",
    "torch.nn.modules.module._has_any_global_hook",
    "torch.autograd.forward_ad._current_level",
    "torch._foreach_add_",
    "torch._amp_foreach_non_finite_check_and_unscale_",
    "torch._log_softmax_backward_data",
    "torch._fused_adam_",
    "torch.autograd.function._SingleLevelFunction",
    "torch._C._set_grad_enabled",
]
OF_CUDA = ["torch._C._cuda_getCurrentRawStream"]
"""What PyTorch for CPUs alone does not have."""
GLOBAL_HOOKS = [
    f"torch.nn.modules.module._global_{kind}_hooks" for kind in ("forward", "forward_pre", "backward", "backward_pre")
]
HOOKED = "torch.nn.modules.module._has_any_global_hook"
YOUNG = {
    "torch.compiler.is_compiling": 3,
    "torch.compiler.is_dynamo_compiling": 3,
    "torch.compiler.disable": 1,
    "torch.compiler.set_stance": 6,
    "torch.get_autocast_dtype": 4,
    "torch.autograd.graph.get_gradient_edge": 1,
    "torch.autograd.graph._engine_run_backward": 4,
    "torch.accelerator.current_accelerator": 6,
    "torch.library.custom_op": 4,
    "torch._C._autograd._top_saved_tensors_default_hooks": 8,
    HOOKED: 8,
}
"""A minor release of PyTorch 2 that has it, in most cases the first."""
PATHS = [path for path in NAMES if YOUNG.get(path, 0) <= TORCH[1]]
KEPT = (HOOKED, "torch.compiler.is_compiling")  # what PyTorch 2.0 to 2.2 had in its place warns today
PUBLIC = [path for path, minor in YOUNG.items() if path not in (*KEPT, *NAMES) and minor <= TORCH[1]]
OF_TENSORS = ["_version", "_base", "_backward_hooks", "_post_accumulate_grad_hooks"]
Without: TypeAlias = Callable[..., Any]
FUNCTIONS = pytest.mark.filterwarnings("ignore:.torch.jit.script. is")  # PyTorch's own, of itself
DEPRECATED = pytest.mark.filterwarnings("ignore:.*autocast.* is deprecated")  # since they were asked for a device
EACH = pytest.mark.parametrize("name", [*PATHS, *OF_TENSORS])
MODES = [path for path in PATHS if "_stack" in path and "_functorch" not in path]


def load_without(*paths: str) -> ModuleType:
    """The file as it is on a PyTorch that lacks these names."""
    spec = spec_from_file_location("torch_private_of_another", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    with pytest.MonkeyPatch.context() as hidden:
        for path in paths:
            hidden.delattr(path)
        spec.loader.exec_module(module := module_from_spec(spec))
    return module
