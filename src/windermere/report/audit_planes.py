"""The audit's two planes: where the training solver and the flow take the same points (the paper's Figures 1 and 2).

Shapes: K steps, P points with trajectories.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure

from windermere.errors import UsageError
from windermere.report.audit_data import Plane
from windermere.report.frame import DecisionRegions, Frame
from windermere.report.palette import Array
from windermere.report.plane import add_inset, draw_plane, plane_legend
from windermere.report.style import add_legend

WIDER = 5.0
"""Both planes have the same limits, unless that made one of them so many times wider than it need be."""
FAR = 0.02
"""The share of points, the farthest ones, that may end outside, where that halves a plane."""
RESOLUTION = 300


@dataclass(frozen=True, eq=False)
class _View:
    """One of the two planes."""

    title: str
    states: Array
    """[K + 1, P, 2]"""
    plane: Plane

    @cached_property
    def frame(self) -> Frame:
        """Around all of it or, where that halves it, around all but the farthest points."""
        ends = self.states[-1]
        distance = np.abs(ends - np.median(ends, axis=0)).max(axis=1)
        near = Frame.around(ends[distance <= np.quantile(distance, 1 - FAR)])
        most, whole = Frame.around(self.states[:, near.holds(ends)]), Frame.around(self.states)
        return most if most.width < whole.width / 2 else whole

    def draw(self, axes: Axes, frame: Frame) -> str:
        """Its trajectories; says how many end outside, if any do."""
        draw_plane(axes, self.states, self.plane.labels, frame, _regions(self.plane, frame))
        return frame.left_out(self.states)

    def draw_inset(self, axes: Axes, frame: Frame) -> None:
        """A small piece of it, in the emptiest corner."""
        inset = add_inset(axes, self.frame, self.states)
        self.draw(inset, frame)
        inset.set(xticks=[], yticks=[])


def _regions(plane: Plane, frame: Frame) -> DecisionRegions | None:
    if plane.decide is None:
        return None
    xx, yy = frame.grid(RESOLUTION)
    predicted = np.asarray(plane.decide(np.stack([xx, yy], axis=-1).reshape(-1, 2)))
    if predicted.shape != (xx.size,):
        raise UsageError(f"decide must turn points [{xx.size}, 2] into classes [{xx.size}], not {predicted.shape}")
    return DecisionRegions(xx=xx, yy=yy, predicted=predicted.reshape(xx.shape))


def draw_planes(row: SubFigure, plane: Plane, trained_with: str) -> None:
    """The training solver's walk on the left, the flow on the right, over the same regions."""
    own = _View(f"As its solver walks: {trained_with}", plane.own, plane)
    flow = _View("As the flow takes the same points", plane.flow, plane)
    panels = row.subplots(1, 2)
    shared = Frame.around(np.concatenate([own.frame.corners, flow.frame.corners]), margin=0.0)
    if shared.width > WIDER * min(own.frame.width, flow.frame.width):
        remarks = _draw_apart(panels, own, flow)
    else:
        remarks = [view.draw(axes, shared) for axes, view in zip(panels, (own, flow), strict=True)]
    for axes, view, remark in zip(panels, (own, flow), remarks, strict=True):
        axes.set_title(view.title, pad=24 if any(remarks) else 8, parse_math=False)
        axes.annotate(remark, (0.5, 1), (0, 7), "axes fraction", "offset points", ha="center", size=9.5)
    classes = 0 if plane.labels is None else max(2, 1 + int(plane.labels.max()))
    add_legend(row, plane_legend(classes, shaded=plane.decide is not None))


def _draw_apart(panels: Sequence[Axes], own: _View, flow: _View) -> list[str]:
    """Each with its own limits and, in a much wider one, an inset with the other's; in words for the titles."""
    remarks = []
    for axes, view, other, side in zip(panels, (own, flow), (flow, own), ("right", "left"), strict=True):
        outside = view.draw(axes, view.frame)
        remark = "limits of its own"
        if (times := view.frame.width / other.frame.width) > 2:
            view.draw_inset(axes, other.frame)
            remark += f", {times:,.0f} times as wide; inset: as on the {side}"
        remarks.append("; ".join(filter(None, [remark, outside])))
    return remarks
