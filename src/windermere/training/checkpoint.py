"""A training's state as named tensors and plain values, and back: safetensors and JSON, never pickles."""

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from windermere.errors import RunError
from windermere.training.ensemble import Ensemble

MODEL, OPTIMIZER = "model/", "optimizer/"


def pack(ensemble: Ensemble, optimizer: Optimizer) -> dict[str, Tensor]:
    """Parameters under `model/`, the optimizer's moments under `optimizer/INDEX/`."""
    tensors = {f"{MODEL}{name}": tensor.detach() for name, tensor in ensemble.tensors.items()}
    for index, slots in optimizer.state_dict()["state"].items():
        for key, value in slots.items():
            if isinstance(value, Tensor):
                tensors[f"{OPTIMIZER}{index}/{key}"] = value
    return tensors


def unpack(tensors: dict[str, Tensor], ensemble: Ensemble, optimizer: Optimizer) -> None:
    """Put everything back where `pack` took it from."""
    wanted = {f"{MODEL}{name}": tensor.shape for name, tensor in ensemble.tensors.items()}
    found = {name: tensor.shape for name, tensor in tensors.items() if name.startswith(MODEL)}
    if wanted != found:
        raise RunError("the checkpoint does not belong to this model: its parameters have other names or shapes")
    ensemble.load({name.removeprefix(MODEL): tensors[name] for name in wanted})
    slots: dict[int, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        if name.startswith(OPTIMIZER):
            index, key = name.removeprefix(OPTIMIZER).split("/")
            slots.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": slots, "param_groups": optimizer.state_dict()["param_groups"]})


def make_optimizer(name: str, parameters: list[Tensor], lr: float) -> Optimizer:
    """Elementwise, so that stacked members stay independent; fused, so that small ones stay cheap."""
    kinds: dict[str, type[torch.optim.Adam] | type[torch.optim.SGD]] = {
        "adam": torch.optim.Adam,
        "sgd": torch.optim.SGD,
    }
    return kinds[name](parameters, lr=lr, fused=True)
