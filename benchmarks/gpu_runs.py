"""Runs that are kept in memory, and how far two of them lie apart."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch


class InMemory:
    """A run's folder without a disk: safetensors may be missing here."""

    path = Path("memory")

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.saved: Any = None

    def load_checkpoint(self, check: Any = None) -> Any:
        return self.saved

    def save_checkpoint(self, tensors: dict[str, torch.Tensor], meta: dict[str, Any]) -> None:
        copies = {name: tensor.cpu().clone() for name, tensor in tensors.items()}
        self.saved = SimpleNamespace(tensors=copies, meta=json.loads(json.dumps(meta)))

    def log(self, row: dict[str, Any]) -> None:
        self.rows.append(json.loads(json.dumps(row)))

    def save_model(self, tensors: dict[str, torch.Tensor], meta: dict[str, Any]) -> None:
        pass


def compared(found: InMemory, plain: InMemory) -> dict[str, Any]:
    """The rows, in which decisions stand as well, and the last checkpoint."""
    numbers, other = [0.0], 0
    for got, want in zip(found.rows, plain.rows, strict=True):
        for name, value in want.items():
            if name == "seconds":
                continue
            if isinstance(value, float) and isinstance(got.get(name), float):
                numbers.append(abs(got[name] - value) / max(abs(value), 1e-3))
            else:
                other += got.get(name) != value
    apart = [
        float((got - want).norm() / want.norm().clamp(min=1e-30))
        for got, want in zip(found.saved.tensors.values(), plain.saved.tensors.values(), strict=True)
    ]
    last = [row.get("step") for row in plain.rows[-len(plain.saved.meta["evaluations"]["forward"]) :]]
    return {
        "rows": len(plain.rows),
        "worst relative difference of a row's number": max(numbers),
        "words or counts that differ": other,
        "worst relative difference of parameters and moments": max(apart),
        "same evaluations": found.saved.meta["evaluations"] == plain.saved.meta["evaluations"],
        "last steps": last,
    }
