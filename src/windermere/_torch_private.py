"""Every private name of PyTorch that we touch, what it is for, and what we do without it; and public names that older
releases lack.

PyTorch may rename or drop a private name, and an older one may not have it yet. Then solves and audits are right all
the same: another way finds the answer, or we say "perhaps", which costs a fast path. Names are looked up once, at
import.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.overrides import has_torch_function

Function = TypeVar("Function", bound=Callable[..., Any])
PERHAPS = object()
"""In place of a transform or a trace: PyTorch cannot be asked for one."""


def _find(path: str, otherwise: Any = None) -> Any:
    """What PyTorch has by this name, such as "torch._C._functorch.peek_interpreter_stack"."""
    place, name = path.rsplit(".", 1)
    try:
        return getattr(import_module(place), name, otherwise)
    except ImportError:
        return otherwise


# What PyTorch does around an operation

tracing_state: Callable[[], object] = _find("torch._C._get_tracing_state", lambda: PERHAPS)
"""What torch.jit.trace has seen so far, or None: it must see every operation. Without it: PERHAPS."""
innermost_transform: Callable[[], Any] = _find("torch._C._functorch.peek_interpreter_stack", lambda: PERHAPS)
"""The innermost of torch.func's transforms in force, or None: inside of one, tensors have no memory of their own.
Without it: PERHAPS."""
_all_transforms = _find("torch._C._functorch.get_interpreter_stack")


def transforms() -> set[str]:
    """Names of all transforms in force, such as Vmap, which hides values, and Grad, which hides that a gradient is
    wanted. Without it, inside of any: both of these."""
    if innermost_transform() in (None, PERHAPS):
        return set()
    return {"Vmap", "Grad"} if _all_transforms is None else {level.key().name for level in _all_transforms()}


def is_forward_mode() -> bool:
    """Whether derivatives are carried along (torch.autograd.forward_ad): a function of our own has none to give.
    Without it: make_dual refuses to work where they are not."""
    if hasattr(forward_ad, "_current_level"):
        return forward_ad._current_level >= 0
    try:
        forward_ad.make_dual(torch.zeros(()), torch.zeros(()))  # type: ignore[no-untyped-call]
    except RuntimeError:
        return False
    return True


is_any_autocast_enabled: Callable[[], bool] = _find("torch._C._is_any_autocast_enabled", lambda: True)
"""Whether autocast rounds operations on some device: asked first, since it takes next to no time. Without it: perhaps,
and the device in question is asked for."""

_dispatch_modes = _find("torch._C._len_torch_dispatch_stack")
_function_modes = _find("torch._C._len_torch_function_stack")
_function_mode_at = _find("torch._C._get_function_stack_at")
_DefaultDevice: Any = _find("torch.utils._device.DeviceContext", ())


def is_in_a_mode() -> bool:
    """Whether someone wants to see every operation, or to put others in their place: to count them, say. A default
    device, which is such a mode too, does neither. Without it: perhaps, so True."""
    if None in (_dispatch_modes, _function_modes, _function_mode_at) or _dispatch_modes() > 0:
        return True
    modes = _function_modes()
    return modes > 0 and any(not isinstance(_function_mode_at(k), _DefaultDevice) for k in range(modes))


_saving_hooks = _find("torch._C._autograd._top_saved_tensors_default_hooks")


@contextmanager
def saving_plainly() -> Iterator[None]:
    """Within it, autograd keeps tensors as they are, whatever hooks there are for those saved: inside of a checkpoint,
    which runs all of its function again when one is asked for, a gradient of its own could not be taken. Without it:
    as they are."""
    if _saving_hooks is None or _saving_hooks(False) is None:
        yield
        return
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        yield


_TorchDispatchMode: Any = _find("torch.utils._python_dispatch.TorchDispatchMode")


def _watching_mode() -> Any:
    if _TorchDispatchMode is None:
        return None

    class DispatchMode(_TorchDispatchMode):  # type: ignore[misc]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            """Nothing is compiled in here: to look would import PyTorch's compiler, which takes seconds."""
            return False

    return DispatchMode


DispatchMode: Any = _watching_mode()
"""Sees every operation that is carried out, those of autograd's way back too. Without it: None, and no field is
traced or captured."""


def name_of(operation: Any) -> tuple[str, bool]:
    """What an operation is called, such as "add_", and whether it writes to what it is given. Without it: by how it is
    spelled."""
    schema = getattr(operation, "_schema", None)
    if schema is None:
        name = str(operation).split(".")[1]
        return name, name.endswith("_") and not name.endswith("__")
    return schema.name.rpartition("::")[2], schema.is_mutable


def written_by(operation: Any) -> list[tuple[int, str]]:
    """Place and name of each argument that an operation writes to. Without it: the first, if it is spelled so."""
    schema = getattr(operation, "_schema", None)
    if schema is None:
        return [(0, "self")] if name_of(operation)[1] else []
    arguments = enumerate(schema.arguments)
    return [(k, x.name) for k, x in arguments if x.alias_info is not None and x.alias_info.is_write]


def argument_of(operation: Any, name: str, args: Sequence[Any], named: dict[str, Any]) -> Any:
    """What an operation is given by this name; PERHAPS if it has no such argument. Without it: PERHAPS."""
    for place, argument in enumerate(getattr(getattr(operation, "_schema", None), "arguments", ())):
        if argument.name == name:
            return args[place] if place < len(args) else named.get(name, argument.default_value)
    return PERHAPS


_run_backward = _find("torch.autograd.graph._engine_run_backward")


def pulled_back(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], given: Sequence[Tensor], *, retain_graph: bool = False
) -> tuple[Tensor | None, ...]:
    """The gradients of the inputs from those `given` of the outputs, None where there is none: torch.autograd.grad,
    which first compares their shapes, and to do so imports what takes over a second. The engine compares them as well.
    Without it: torch.autograd.grad."""
    if _run_backward is None or has_torch_function((*outputs, *inputs)):
        return torch.autograd.grad(outputs, inputs, given, retain_graph, allow_unused=True)
    return _run_backward(  # type: ignore[no-any-return]
        tuple(outputs), tuple(given), retain_graph, False, tuple(inputs), True, accumulate_grad=False
    )


_OneLevel: Any = _find("torch.autograd.function._SingleLevelFunction")


def put_on_tape(function: Any, *given: Any) -> Any:
    """`function.apply`, where no transform of torch.func is in force: what it does in case there is one takes longer
    than a small solve's arithmetic. Without it: `function.apply`."""
    return function.apply(*given) if _OneLevel is None else super(_OneLevel, function).apply(*given)


_set_grad_enabled = _find("torch._C._set_grad_enabled")


class _Ungraded:
    """One `with ungraded():`."""

    __slots__ = ("before",)

    def __enter__(self) -> None:
        self.before = torch.is_grad_enabled()
        _set_grad_enabled(False)

    def __exit__(self, *_: object) -> None:
        _set_grad_enabled(self.before)


ungraded: Any = torch.no_grad if _set_grad_enabled is None else _Ungraded
"""torch.no_grad without the two objects that it makes on its way in and out. Without it: torch.no_grad."""


# What PyTorch knows of tensors and modules

is_batched_by_autograd: Callable[[Tensor], bool] = _find(
    "torch._C._functorch.is_legacy_batchedtensor", lambda tensor: True
)
"""Whether it stands for many gradients at once, as in torch.autograd.grad(is_grads_batched=True): C cannot read it.
Without it: perhaps, so True."""


def times_written(tensor: Tensor) -> int | None:
    """How often PyTorch has written to a tensor's memory: a field must not change what it was given or has returned.
    None where PyTorch does not count; then nobody can tell."""
    try:
        return None if tensor.is_inference() else tensor._version
    except AttributeError:
        return None


def has_hooks(tensor: Tensor) -> bool:
    """Whether someone wants to see this tensor's gradient on its way: autograd's engine calls them, a short cut does
    not. Without it: perhaps, so True."""
    try:
        return bool(tensor._backward_hooks or tensor._post_accumulate_grad_hooks)
    except AttributeError:
        return True


_HOOKS = "_backward_hooks"


@contextmanager
def without_hooks(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Within it, nobody sees parts of these tensors' gradients: their hooks are for the whole, and called once. Without
    it: they are called."""
    kept = [(tensor, hooks) for tensor in tensors if (hooks := getattr(tensor, _HOOKS, None))]
    for tensor, _ in kept:
        setattr(tensor, _HOOKS, None)
    try:
        yield
    finally:
        for tensor, hooks in kept:
            setattr(tensor, _HOOKS, hooks)


_global_hooks = (
    _find("torch.nn.modules.module._global_forward_hooks"),
    _find("torch.nn.modules.module._global_forward_pre_hooks"),
    _find("torch.nn.modules.module._global_backward_hooks"),
    _find("torch.nn.modules.module._global_backward_pre_hooks"),
)
_has_any_global_hook: Callable[[], object] = _find(
    "torch.nn.modules.module._has_any_global_hook",  # before PyTorch has it, each kind is looked for
    lambda: any(hooks is None or hooks for hooks in _global_hooks),
)


def is_hooked(module: nn.Module) -> bool:
    """Whether a call of this module calls hooks too, its own or those of all modules: a fast path does not. Without
    it: perhaps, so True."""
    try:
        own = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    except AttributeError:
        return True
    return bool(own or _has_any_global_hook())


# Public names that the oldest PyTorch we work with does not have

is_compiling: Callable[[], bool] = _find("torch.compiler.is_compiling") or _find(
    "torch._utils.is_compiling", lambda: False
)
"""Whether torch.compile or torch.export reads this code. Public since 2.3."""
is_dynamo_compiling: Callable[[], bool] = _find("torch.compiler.is_dynamo_compiling", is_compiling)
"""Whether torch.compile reads this code. Public since 2.3."""
_leave_alone = _find("torch.compiler.disable", lambda function: function)


def uncompiled(function: Function) -> Function:
    """The function, left alone by torch.compile. Public since 2.1; before, nothing is compiled with Python 3.11."""
    return _leave_alone(function)  # type: ignore[no-any-return]


def eager_stance() -> AbstractContextManager[Any] | None:
    """In all threads, what torch.compile made runs as it was written until this is left; None where nothing is compiled
    yet. Public since 2.6; before, PyTorch says itself what is wrong."""
    stance = _find("torch.compiler.set_stance")
    nothing_compiled = "torch._dynamo" not in sys.modules  # whose import takes seconds
    return None if stance is None or nothing_compiled else stance("force_eager")  # in force from here on


def numbers_in(vector: Tensor) -> list[float]:
    """Its entries as numbers. In one go inside of torch.func's transforms too, in later releases than 2.4; before, one
    by one there."""
    try:
        return vector.detach().tolist()
    except RuntimeError:
        return [entry.item() for entry in vector.detach()]


_custom_op = _find("torch.library.custom_op")
HAS_OPERATIONS: bool = _custom_op is not None
"""Whether `operation` makes one. Public since 2.4."""


def operation(name: str, function: Function, *, shaped: Callable[..., Tensor], back: Callable[..., Any]) -> Function:
    """The function as one operation to autograd and to torch.compile, which looks no further: `shaped` gives an empty
    result, `back` the cotangents of its arguments, which are all that is kept. Before 2.4: the function as it is."""
    if _custom_op is None:
        return function
    made = _custom_op(name, function, mutates_args=())
    made.register_fake(shaped)
    made.register_autograd(back, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
    return made  # type: ignore[no-any-return]


_AUTOCAST = {"cpu": "autocast_cpu", "xpu": "autocast_xpu", "cuda": "autocast"}
_AUTOCAST_DTYPE = {"cpu": "autocast_cpu", "xpu": "autocast_xpu", "cuda": "autocast_gpu"}


def is_autocast_enabled(device: str) -> bool:
    """Whether autocast rounds operations on such a device. A question for any device since 2.4; before, each has its
    own."""
    if hasattr(torch, "get_autocast_dtype"):
        return device in ("cpu", "cuda", "mps", "xpu") and torch.is_autocast_enabled(device)
    return device in _AUTOCAST and bool(getattr(torch, f"is_{_AUTOCAST[device]}_enabled")())


def autocast_dtype(device: str) -> torch.dtype:
    """What autocast rounds to on such a device. Since 2.4, as above."""
    if hasattr(torch, "get_autocast_dtype"):
        return torch.get_autocast_dtype(device)
    return getattr(torch, f"get_{_AUTOCAST_DTYPE[device]}_dtype")()  # type: ignore[no-any-return]


_gradient_edge = _find("torch.autograd.graph.get_gradient_edge")


def gradient_edge(tensor: Tensor) -> tuple[Any, int]:
    """Where a tensor that needs a gradient stands in autograd's graph: a node, and which of its outputs. Public since
    2.1; before, a view's node says what it is a view of."""
    if _gradient_edge is not None:
        node, output = tuple(_gradient_edge(tensor))[:2]
        return node, output
    with torch.enable_grad():
        view: Any = tensor.view_as(tensor).grad_fn
    return view.next_functions[0]  # type: ignore[no-any-return]


_accelerator: Callable[[], torch.device | None] | None = _find("torch.accelerator.current_accelerator")


def accelerator() -> torch.device:
    """The device that this machine computes on. Public since 2.6; before, CUDA's or the CPU."""
    if _accelerator is not None:
        return _accelerator() or torch.device("cpu")
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


stream_of: Callable[[int], int] = _find(
    "torch._C._cuda_getCurrentRawStream", lambda index: torch.cuda.current_stream(index).cuda_stream
)
"""The address of the current stream of the GPU with this number. Without it, and in PyTorch for CPUs alone: by way of
an object, which takes as long as a launch."""


# Many small operations in one, for training

_add_each = _find("torch._foreach_add_")


def add_each(tensors: Sequence[Tensor], others: Sequence[Tensor]) -> None:
    """Add to each tensor its other, in place, at once. Without it: one after the other."""
    if _add_each is not None:
        _add_each(tensors, others)
        return
    for tensor, other in zip(tensors, others, strict=True):
        tensor.add_(other)


_check_all_finite = _find("torch._amp_foreach_non_finite_check_and_unscale_")


def note_non_finite(tensors: Sequence[Tensor], bad: Tensor, one: Tensor) -> None:
    """Set `bad` to 1 if an entry of a tensor is not finite, and do not wait for the device: as torch.amp.GradScaler
    does, which also multiplies by its scale, here `one`. Without it: one tensor after the other."""
    if _check_all_finite is not None:
        _check_all_finite(tensors, bad, one)
        return
    for tensor in tensors:
        bad.copy_(torch.maximum(bad, (~tensor.isfinite().all()).to(bad.dtype)))


_log_softmax_back = _find("torch._log_softmax_backward_data")


def log_softmax_back(on_result: Tensor, result: Tensor, dim: int) -> Tensor:
    """The cotangent of what log_softmax was given, without a tape. Without it: by its formula."""
    if _log_softmax_back is not None:
        return _log_softmax_back(on_result, result, dim, result.dtype)  # type: ignore[no-any-return]
    return on_result - result.exp() * on_result.sum(dim, keepdim=True)


_fused_adam = _find("torch._fused_adam_")


def step_adam(
    parameters: Sequence[Tensor], gradients: Sequence[Tensor | None], slots: Sequence[Any], settings: dict[str, Any]
) -> bool:
    """Adam's step with a group's settings, without what PyTorch wraps around it, which for a small model takes longer.
    Without it: False, and nothing done."""
    if _fused_adam is None:
        return False
    beta1, beta2 = settings["betas"]
    plain = {name: settings[name] for name in ("lr", "weight_decay", "eps")}
    with ungraded():
        _counts_of(slots).add_(1)
        first, second, taken = ([slot[name] for slot in slots] for name in ("exp_avg", "exp_avg_sq", "step"))
        _fused_adam(
            *(parameters, gradients, first, second, [], taken),
            **{"beta1": beta1, "beta2": beta2, "amsgrad": False, "maximize": False, **plain},
        )
    return True


def _counts_of(slots: Sequence[Any]) -> Tensor:
    """The slots' counts of steps as one tensor, of which each slot holds an entry from then on: to add to many tensors
    takes longer than Adam's step. Without `_base`: one made anew each time."""
    whole: Tensor | None = getattr(slots[0]["step"], "_base", None)
    if whole is None or whole.numel() != len(slots) or any(slot["step"]._base is not whole for slot in slots):
        whole = torch.stack([slot["step"] for slot in slots])
        for slot, own in zip(slots, whole.unbind(), strict=True):
            slot["step"] = own
    return whole


@cache
def compile_errors() -> tuple[type[Exception], ...]:
    """What torch.compile raises where something cannot be compiled: its own, which take a second to import, or a tool
    is missing. Without it: the built-in that its own derive from."""
    return _find("torch._dynamo.exc.TorchDynamoException", RuntimeError), ImportError, OSError
