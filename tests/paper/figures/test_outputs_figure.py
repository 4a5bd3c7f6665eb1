"""Panels of outputs, with and without an inset."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from windermere.paper.figures.outputs_figure import OutputsPanel, draw_outputs
from windermere.report.frame import DecisionRegions, Frame


def outputs_panel(scale: float = 1.0) -> OutputsPanel:
    """Two clusters on both sides of x = 0, and some points of class 0 on the wrong side; scale spreads the right."""
    generator = np.random.default_rng(0)
    right, wrong = generator.normal(size=(60, 2)) * scale, generator.normal(size=(10, 2)) * 0.1 + [3, 0]
    outputs = np.concatenate([right, wrong])
    xx, yy = Frame.around(outputs).grid(30)
    predicted = (outputs[:, 0] > 0).astype(int)
    return OutputsPanel(
        title="tested with h = 1/4",
        remark="10 of 70 wrong",
        outputs=outputs,
        labels=np.concatenate([predicted[:60], np.zeros(10, dtype=int)]),
        predicted=predicted,
        decision=DecisionRegions(xx=xx, yy=yy, predicted=(xx > 0).astype(int)),
    )


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_outputs_are_750_by_885_pixels_a_panel_with_and_without_an_inset(
    tmp_path: Path, count: int, scale: float
) -> None:
    draw_outputs([outputs_panel(scale)] * count, tmp_path / "figure.png")
    assert imread(tmp_path / "figure.png").shape[:2] == (885, 750 * count)
