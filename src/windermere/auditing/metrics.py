"""Metrics as values: what scores outputs, which scores are better, and how far apart is different.

Shapes: n samples, T times; outputs come with the samples first, [n, ...], and series with the times next, [n, T, ...].
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from math import inf
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from windermere.auditing.labels import as_classes
from windermere.auditing.statistics import Better
from windermere.checks import as_number, takes_two
from windermere.errors import UsageError, describe_value
from windermere.report.numbers import ACCURACY

Function: TypeAlias = Callable[[Any, Any], Any]
"""function(outputs, targets) gives every sample's score, [n], or also every time's, [n, T]."""
Form: TypeAlias = Literal["mean", "mean square", "root mean square", "explained"]
TIMES_OWN = 1.5
"""An error that many times the own one is different."""
FORMS = ("mean", "mean square", "root mean square", "explained")


@dataclass(frozen=True)
class Metric:
    """What scores a model's outputs, and what counts as different. `metric="mse"` is a ready one by its name.

    function: function(outputs, targets) gives one score for each sample, [n], or for each sample and time, [n, T].
        Outputs come with the samples first, as float64 tensors; targets are None where the audit was given none.
    better: "higher" or "lower", whichever scores are the better ones.
    threshold: mean scores further apart than this are different. With `relative`, an error this many times as large is.
    relative: whether scores are errors, judged by how many times the model's own error they are.
    name: how the metric is called. Default: the function's own name.
    form: what the score is made of. "mean": the mean of what the function gives. "mean square" and "root mean square":
        it gives squared errors, which are judged by the roots of their means, whichever of the two is shown.
        "explained": it gives squared errors, and the score is R², 1 minus their mean over the variance of the targets.
    units: of the scores. With "nats" they are negative log-likelihoods, and the advice speaks of those.

    >>> import windermere as wm
    >>> wm.Metric(lambda outputs, targets: (outputs - targets).abs().amax(dim=1), better="lower", relative=True).limit
    1.5
    """

    function: Function
    _: KW_ONLY
    better: Better
    threshold: float | None = None
    relative: bool = False
    name: str | None = None
    form: Form = "mean"
    units: str | None = None

    def __post_init__(self) -> None:
        if not (callable(self.function) and takes_two(self.function)):
            raise UsageError(f"a metric is a function of outputs and targets, not {describe_value(self.function)}")
        if self.better not in ("higher", "lower"):
            raise UsageError(f'better is "higher" or "lower", not {describe_value(self.better)}')
        if self.relative and self.better == "higher":
            raise UsageError('a relative metric gives errors, of which lower ones are better: give better="lower"')
        if self.form not in FORMS:
            raise UsageError(f"form is one of {', '.join(FORMS)}, not {describe_value(self.form)}")
        if "square" in self.form and not self.relative:
            raise UsageError(f'the form "{self.form}" is one of errors: give relative=True')
        if self.threshold is not None:
            check_threshold(self.threshold, relative=self.relative)

    @property
    def limit(self) -> float | None:
        """The threshold, with 1.5 as that of errors where none was given."""
        return TIMES_OWN if self.threshold is None and self.relative else self.threshold

    @property
    def called(self) -> str:
        """As its author named it; a lambda or a partial has no name."""
        name = str(self.name or getattr(self.function, "__name__", ""))
        return name if self.name or name.isidentifier() else "the metric"


def check_threshold(threshold: Any, *, relative: bool = False) -> None:
    """Refuses what cannot be a threshold."""
    if relative and not 1 < as_number(threshold) < inf:
        raise UsageError(
            "an error is judged by how many times the model's own it is: the threshold is a number above 1, such as "
            f"1.5, not {describe_value(threshold)}"
        )
    if not 0 <= as_number(threshold) < inf:
        raise UsageError(f"threshold must be a number of at least 0, not {describe_value(threshold)}")


# ---------------------------------------------------------------------------------------------------------
# Functions of the ready ones


def decisions(outputs: Tensor) -> Tensor:
    """The class of each sample: the largest output, or the sign of a single one."""
    table = outputs.flatten(1) if outputs.ndim > 1 else outputs.unsqueeze(1)
    return table.argmax(dim=1) if table.shape[1] > 1 else (table[:, 0] > 0).long()


def accuracy(outputs: Tensor, labels: Tensor) -> Tensor:
    """The default metric: 1 where the class is right."""
    return (decisions(outputs) == as_classes(labels)).double()


def squared_errors(outputs: Tensor, targets: Any) -> Tensor:
    """By sample and time, over all other entries; not a number where no target is one."""
    return over_entries((outputs - like(outputs, targets)).square())


def absolute_errors(outputs: Tensor, targets: Any) -> Tensor:
    """By sample and time, over all other entries; not a number where no target is one."""
    return over_entries((outputs - like(outputs, targets)).abs())


def negative_log_density(outputs: Tensor, targets: Any) -> Tensor:
    """Outputs are log-densities, one for each sample."""
    if outputs[0].numel() != 1:
        raise UsageError(
            "nll takes the model's outputs for log-densities, one for each sample, but those of a sample have shape "
            f"{tuple(outputs.shape[1:])}: let the model return log p(x) alone, or give a wm.Metric of your own"
        )
    return -outputs.reshape(len(outputs))


def over_entries(values: Tensor) -> Tensor:
    """The mean over all axes but the samples' and the times', without what is not a number."""
    return values.flatten(2).nanmean(dim=2) if values.ndim > 2 else values


def like(outputs: Tensor, targets: Any) -> Tensor:
    """Targets in the shape of the outputs, which may differ by axes of one entry only: anything else would be spread
    out in silence."""
    if targets is None:
        raise UsageError("errors are those of outputs against targets, but there are none: give (inputs, targets)")
    try:
        found = torch.as_tensor(targets)
    except (TypeError, ValueError) as error:
        raise UsageError("errors need targets that are numbers, as the outputs are") from error
    if found.is_complex():
        raise UsageError("errors need real targets, and these are complex: give their real and imaginary parts")
    found = found.to(torch.float64)
    if found.isinf().any():
        raise UsageError("a target is infinite, and so is its error: give nan where nothing was measured")
    if [k for k in found.shape if k != 1] != [k for k in outputs.shape if k != 1]:
        raise UsageError(
            f"errors need one target for each output, but outputs have shape {tuple(outputs.shape)} and targets "
            f"{tuple(found.shape)}: give targets like the outputs, with the samples first"
        )
    return found.reshape(outputs.shape)


@dataclass(frozen=True)
class _Drift:
    """By how much energy differs from that at the first time, squared, [n, T]."""

    energy: Callable[[Tensor], Tensor]

    def __call__(self, outputs: Tensor, targets: Any) -> Tensor:
        try:
            values = self.energy(outputs)
        except RuntimeError:  # a learned energy may have float32 weights
            values = self.energy(outputs.float())
        found = torch.as_tensor(values).detach().double()
        if found.ndim == outputs.ndim and found.shape[-1] == 1:
            found = found.squeeze(-1)
        if found.ndim != 2 or found.shape[0] != len(outputs) or found.shape[1] < 2:
            raise UsageError(
                "energy-drift needs the energy at several times of each sample, [n, T], but the energy of outputs of "
                f"shape {tuple(outputs.shape)} has shape {tuple(found.shape)}: let the model return its trajectory, "
                "[n, T, ...], and the energy leave out the last axis"
            )
        return (found - found[:, :1]).square()


def energy_drift(energy: Callable[[Tensor], Tensor], *, threshold: float = TIMES_OWN) -> Metric:
    """How far a conserved energy drifts along a trajectory, as a metric: errors are judged relative to the model's own.

    `energy` takes outputs [n, T, ...] and gives [n, T]; the drift is the root mean square of its difference from the
    first time's. By name, `metric="energy-drift"` takes the model's own method `energy`.

    >>> import windermere as wm
    >>> wm.energy_drift(lambda z: z.square().sum(dim=-1) / 2).called
    'energy-drift'
    """
    return Metric(
        _Drift(energy), better="lower", threshold=threshold, relative=True, name="energy-drift", form="root mean square"
    )


READY: Mapping[str, Metric] = MappingProxyType(
    {
        ACCURACY: Metric(accuracy, better="higher", threshold=0.1, name=ACCURACY),
        "rmse": Metric(squared_errors, better="lower", relative=True, name="rmse", form="root mean square"),
        "mse": Metric(squared_errors, better="lower", relative=True, name="mse", form="mean square"),
        "mae": Metric(absolute_errors, better="lower", relative=True, name="mae"),
        "r2": Metric(squared_errors, better="higher", threshold=0.01, name="r2", form="explained"),
        "nll": Metric(negative_log_density, better="lower", threshold=0.05, name="nll", units="nats"),
    }
)
"""The metrics that have a name; besides them there is energy-drift, which needs the model's energy."""
NAMES = (*READY, "energy-drift")


def as_metric(given: Any, model: Any) -> Metric | Function | None:
    """What was asked for: a metric, maybe by its name, a plain function, which has no direction, or None."""
    found = _named(given, model) if isinstance(given, str) else given
    if found is not None and not isinstance(found, Metric) and not (callable(found) and takes_two(found)):
        raise UsageError(
            f"a metric is a function of outputs and targets, a wm.Metric or a name, not {describe_value(found)}: leave "
            "it out for accuracy"
        )
    return found


def _named(name: str, model: Any) -> Metric:
    if name in READY:
        return READY[name]
    if name != "energy-drift":
        raise UsageError(f"there is no metric {name!r}: there are {', '.join(NAMES)}, and functions of your own")
    if not callable(getattr(model, "energy", None)):
        raise UsageError(
            "energy-drift needs the energy: give metric=wm.energy_drift(energy), or the model a method energy(states)"
        )
    return energy_drift(model.energy)
