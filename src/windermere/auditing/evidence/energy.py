"""Energy: does the solver gain or lose what the flow keeps?

A field that has an `energy` or a `hamiltonian`, a function or module from states [P, ...] to one number for each, is
asked for it. Shapes: P points, K steps.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from windermere.auditing.evidence.paths import OwnPaths

NAMES = ("energy", "hamiltonian")
NODES = 64
"""Along the way, evenly spread."""


@dataclass(frozen=True, kw_only=True)
class EnergyDrift:
    """How far energies end from where they began, relative to their spread over the points."""

    own: float
    """The median with the training solver, at the end."""
    largest: float
    """The largest of all points along its way."""
    flow: float | None
    """The median under the flow, at the end; None where that is not known."""
    points: int
    proves: ClassVar[str] = (
        "Energy that the flow of the field keeps and the solver does not is gained or lost by the solver's error."
    )
    limits: ClassVar[str] = (
        "It is the energy that the field itself names; what drifts under the flow too, the field does. A solver that "
        "keeps the energy may still be wrong about everything else."
    )

    @property
    def finding(self) -> str:
        """In words."""
        under = "" if self.flow is None else f", under the flow by {self.flow:.2g}"
        return (
            f"with its own solver the energy ends {self.own:.2g} of its spread over samples away from where it began "
            f"(up to {self.largest:.2g} along the way){under}"
        )


def energy_drift(
    energy: Callable[[Tensor], Tensor], states: Tensor, flow_end: Tensor | None = None
) -> EnergyDrift | None:
    """The drift along states [K + 1, P, ...]; None where what is called energy gives no number for each point."""
    values = [_one_each(energy, z) for z in states]
    found = [value for value in values if value is not None]
    if len(found) < len(values) or not torch.stack(found).isfinite().all():
        return None
    along = torch.stack(found)
    away = (along - along[0]).abs() / _spread(along[0])
    end = None if flow_end is None else _one_each(energy, flow_end)
    flow = None if end is None else float(((end - along[0]).abs() / _spread(along[0])).median())
    return EnergyDrift(own=float(away[-1].median()), largest=float(away.max()), flow=flow, points=along.shape[1])


def own_energy_drift(paths: OwnPaths) -> EnergyDrift | None:
    """The drift of the field's own energy, None where it has none."""
    energy = energy_of(paths.insight.field)
    if energy is None:
        return None
    nodes = [*paths.nodes(NODES), len(paths.times) - 1]
    return energy_drift(energy, paths.states[nodes], None if paths.flow is None else paths.flow.end)


def energy_of(field: Any) -> Callable[[Tensor], Tensor] | None:
    """The energy of a field, or of what it is made of: the network of an `Autonomous`, the field of another library."""
    if getattr(field, "parts", None) is not None:  # a tuple's parts side by side are no state that its energy knows
        return None
    asked = getattr(field, "asked", None)
    for carrier in (field, getattr(field, "network", None), getattr(asked, "field", None)):
        for name in NAMES:
            if callable(energy := getattr(carrier, name, None)):
                return energy  # type: ignore[no-any-return]
    return None


def _one_each(energy: Callable[[Tensor], Tensor], states: Tensor) -> Tensor | None:
    """[P]; None where it is something else, as of a method that only happens to have this name."""
    try:
        values = energy(states)
    except Exception:  # whatever the user's code raises  # noqa: BLE001
        return None
    if not isinstance(values, Tensor) or values.numel() != len(states):
        return None
    return values.detach().reshape(len(states)).double()


def _spread(energies: Tensor) -> float:
    """The mean distance from the mean; where there is none, the mean size."""
    return float((energies - energies.mean()).abs().mean()) or float(energies.abs().mean()) or 1.0
