"""A training's state as named tensors and plain values, and back: safetensors and JSON, never pickles."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from windermere._torch_private import step_adam
from windermere.errors import RunError
from windermere.paper.training.config import RunConfig

MODEL, OPTIMIZER = "model/", "optimizer/"


class Holder(Protocol):
    """What holds parameters by their names, such as an ensemble."""

    @property
    def tensors(self) -> Mapping[str, Tensor]: ...

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `tensors` holds."""
        ...


def pack(holder: Holder, optimizer: Optimizer) -> dict[str, Tensor]:
    """Parameters under `model/`, the optimizer's moments under `optimizer/INDEX/`."""
    tensors = {f"{MODEL}{name}": tensor.detach() for name, tensor in holder.tensors.items()}
    for index, slots in optimizer.state_dict()["state"].items():
        for key, value in slots.items():
            if isinstance(value, Tensor):
                tensors[f"{OPTIMIZER}{index}/{key}"] = value
    return tensors


def unpack(tensors: dict[str, Tensor], holder: Holder, optimizer: Optimizer) -> None:
    """Put everything back where `pack` took it from."""
    wanted = {f"{MODEL}{name}": tensor.shape for name, tensor in holder.tensors.items()}
    found = {name: tensor.shape for name, tensor in tensors.items() if name.startswith(MODEL)}
    if wanted != found:
        raise RunError("the checkpoint does not belong to this model: its parameters have other names or shapes")
    holder.load({name.removeprefix(MODEL): tensors[name] for name in wanted})
    slots: dict[int, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        if name.startswith(OPTIMIZER):
            index, key = name.removeprefix(OPTIMIZER).split("/")
            slots.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": slots, "param_groups": optimizer.state_dict()["param_groups"]})


def check_it_belongs(path: Path, config: RunConfig, meta: Mapping[str, Any]) -> None:
    """Refuse a checkpoint that another run has saved. One with more seeds may be this run's, which left some behind."""
    if "config" not in meta:
        why = "it does not say which run saved it, as those of earlier versions do not"
    elif meta["config"] != config.digest:
        why = "it was saved by one with other settings"
    elif not set(config.seeds) <= set(meta["seeds"]):
        why = f"it has seeds {meta['seeds']}, not {list(config.seeds)}"
    else:
        return
    raise RunError(
        f"the checkpoint in {path} does not belong to this run, since {why}: put the run's own back, or start a new "
        "run in another folder"
    )


def of_members(tensors: Mapping[str, Tensor], members: Sequence[int]) -> dict[str, Tensor]:
    """The tensors of some members only."""
    return {name: t.clone() if is_shared(name) else t[list(members)] for name, t in tensors.items()}


def not_finite(tensors: Mapping[str, Tensor], members: int) -> list[int]:
    """The members that have an entry which is not finite."""
    own = [tensor for name, tensor in tensors.items() if not is_shared(name)]
    if all(bool(tensor.isfinite().all()) for tensor in own):
        return []
    return [s for s in range(members) if not all(bool(tensor[s].isfinite().all()) for tensor in own)]


def is_shared(name: str) -> bool:
    """An optimizer's count of steps is one for all members."""
    return name.startswith(OPTIMIZER) and name.endswith("/step")


def make_optimizer(name: str, parameters: list[Tensor], lr: float) -> Optimizer:
    """Elementwise, so that stacked members stay independent; fused, so that small ones stay cheap."""
    kinds: dict[str, type[torch.optim.Adam] | type[torch.optim.SGD]] = {
        "adam": torch.optim.Adam,
        "sgd": torch.optim.SGD,
    }
    return kinds[name](parameters, lr=lr, fused=True)


def update(optimizer: Optimizer) -> None:
    """The step of an optimizer made above, to the bit. PyTorch wraps hooks, profiling and a sorting of tensors around
    it, which for a small model on a CPU take longer than the step."""
    (group,) = optimizer.param_groups
    parameters = [p for p in group["params"] if p.grad is not None]
    slots = [slot for p in parameters if (slot := optimizer.state.get(p))]  # to index one would make it
    here = all(p.is_cpu for p in parameters)
    if not isinstance(optimizer, torch.optim.Adam) or not here or len(slots) < len(parameters):
        optimizer.step()  # which also makes the slots
        return
    if not step_adam(parameters, [p.grad for p in parameters], slots, group):
        optimizer.step()
