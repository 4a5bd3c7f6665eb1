"""Scenes: what a page is made from."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import windermere as wm
from tests.auditing.test_known_cases import rotation_verdict
from tests.report.records import a_record
from windermere.auditing.scene_samples import THUMBNAIL_BYTES, Thumbnails
from windermere.auditing.scene_view import FRAMES, Projection, View, resampled
from windermere.auditing.verdict import Verdict
from windermere.errors import UsageError
from windermere.report.page import audit_page
from windermere.report.reading import saved_verdicts

RING = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))


class Turning(nn.Module):
    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return x.roll(1, dims=1)


def scene_of(verdict: Verdict) -> dict[str, Any]:
    assert verdict.scene is not None
    made = verdict.scene()
    assert made is not None
    return made


@pytest.fixture(scope="module")
def tied() -> Verdict:
    return rotation_verdict(2)


def test_a_scene_walks_from_coarse_to_fine_and_ends_with_the_flow(tied: Verdict) -> None:
    scene = scene_of(tied)
    *rungs, flow = scene["rungs"]
    steps = [rung["steps"] for rung in rungs]
    assert steps == sorted(steps)
    assert flow["flow"]
    assert rungs[scene["own"]]["solver"] == tied.own.solver
    assert rungs[scene["own"]]["score"] == tied.own.metric
    assert flow["score"] == pytest.approx(tied.reference.metric)
    assert flow["agreement"] == 1.0
    assert rungs[scene["own"]]["agreement"] == pytest.approx(tied.agreement)


def test_paths_lie_where_the_view_puts_the_states_and_refine_towards_the_flow(tied: Verdict) -> None:
    *rungs, flow = scene_of(tied)["rungs"]
    distances = [np.abs(rung["paths"][-1] - flow["paths"][-1]).max() for rung in rungs]
    assert distances[-1] < 0.05 < distances[0]
    assert all(rung["paths"].shape == flow["paths"].shape == (FRAMES + 1, 200, 2) for rung in rungs)


def test_maps_hold_what_the_model_decides_there(tied: Verdict) -> None:
    scene = scene_of(tied)
    own = scene["rungs"][scene["own"]]
    side = own["map"].shape[0]
    column, row = np.round((scene["inputs"].T + 1) / 2 * (side - 1)).astype(int)
    assert (own["map"][row, column] == own["decided"]).mean() > 0.9


class Fenced(nn.Module):
    """It knows no states beyond those of its samples, and says so in its own way."""

    def forward(self, t: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        if z.norm(dim=1).max() > 1.1:
            raise KeyError("beyond the fence")
        return z.roll(1, dims=1) * torch.tensor([-0.3, 0.3], dtype=z.dtype)


def test_where_a_field_raises_behind_its_samples_there_is_no_map_and_a_page_all_the_same() -> None:
    model = nn.Sequential(wm.ODEBlock(Fenced(), wm.FixedStep.of("midpoint", steps=8)), nn.Linear(2, 2))
    x = nn.functional.normalize(RING)
    verdict = wm.audit(model, (x, model(x).argmax(dim=1)))
    scene = scene_of(verdict)
    assert all("paths" in rung and "map" not in rung for rung in scene["rungs"])


def test_a_confusion_matrix_counts_every_sample_once(tied: Verdict) -> None:
    scene = scene_of(tied)
    for rung in scene["rungs"]:
        assert np.sum(rung["confusion"]) == np.sum(rung["moved"]) == tied.samples
        assert np.trace(rung["confusion"]) / tied.samples == pytest.approx(rung["agreement"])


def test_a_scene_is_made_once_and_a_pickle_keeps_it_without_the_model(tied: Verdict) -> None:
    made = scene_of(tied)
    again = pickle.loads(pickle.dumps(tied))  # noqa: S301
    assert again.scene() is not made
    assert again.scene()["rungs"][0]["score"] == made["rungs"][0]["score"]
    fresh = pickle.loads(pickle.dumps(rotation_verdict(2)))  # noqa: S301
    assert fresh.scene() is None
    assert audit_page([fresh.to_dict()])


def test_without_evidence_there_is_no_scene() -> None:
    assert rotation_verdict(2, evidence=False).scene is None


def test_states_of_many_entries_are_projected_and_have_no_map() -> None:
    torch.manual_seed(0)
    block = wm.ODEBlock(wm.Autonomous(nn.Linear(5, 5)), wm.FixedStep("euler", step=1 / 2))
    verdict = wm.audit(nn.Sequential(block, nn.Linear(5, 3)), (torch.randn(50, 5), torch.arange(50) % 3))
    scene = scene_of(verdict)
    assert (scene["kind"], scene["dimension"], scene["classes"]) == ("plane", 5, 3)
    assert 0.4 < scene["explained"] < 1
    assert all("map" not in rung for rung in scene["rungs"])


def test_tolerances_are_a_ladder_too() -> None:
    torch.manual_seed(0)
    block = wm.ODEBlock(wm.Autonomous(nn.Linear(2, 2)), wm.Adaptive("dopri54", tolerance=1e-3))
    scene = scene_of(wm.audit(nn.Sequential(block), (torch.randn(40, 2), torch.zeros(40, dtype=torch.int64))))
    precisions = [rung["precision"] for rung in scene["rungs"][:-1]]
    assert precisions == sorted(precisions, reverse=True)
    assert precisions[scene["own"]] == 1e-3


def test_a_bare_function_shows_how_its_outputs_move() -> None:
    def predict(x: torch.Tensor, solver: wm.Solver) -> torch.Tensor:
        return wm.solve(lambda t, z: z.flip(1), x, solver).final

    labels = torch.zeros(30, dtype=torch.int64)
    verdict = wm.audit(predict, (torch.randn(30, 2), labels), trained_with=wm.FixedStep("euler", step=1 / 4))
    scene = scene_of(verdict)
    assert scene["kind"] == "outputs"
    assert all("paths" not in rung for rung in scene["rungs"])
    assert sum(scene["rungs"][0]["moved"]) == 30


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_no_rung_of_unknown_times_repeats_another(steps: int) -> None:
    """Steps longer than the whole time are one step, whatever they are called."""

    def predict(x: torch.Tensor, solver: wm.Solver) -> torch.Tensor:
        return wm.solve(lambda t, z: z.flip(1), x, solver).final

    labels = torch.zeros(30, dtype=torch.int64)
    scene = scene_of(wm.audit(predict, (RING[:30], labels), trained_with=wm.FixedStep("euler", step=1 / steps)))
    counts = [rung["evaluations"] for rung in scene["rungs"][:-1]]
    assert counts == sorted(set(counts))
    assert scene["rungs"][scene["own"]]["precision"] == 1 / steps


@pytest.mark.parametrize("suffix", ["html", "json", "png", "svg"])
def test_a_verdict_is_saved_by_its_suffix(tied: Verdict, tmp_path: Path, suffix: str) -> None:
    starts = {"html": b"<!doctype html>", "json": b"{", "png": b"\x89PNG", "svg": b"<?xml"}
    tied.save(str(tmp_path / f"audit.{suffix}"))
    assert (tmp_path / f"audit.{suffix}").read_bytes().startswith(starts[suffix])


def test_another_suffix_is_refused(tied: Verdict, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"saved as .html, .json, .png or .svg, and 'audit.pdf' ends in none"):
        tied.save(tmp_path / "audit.pdf")


def test_a_saved_verdict_makes_the_same_page_again(tied: Verdict, tmp_path: Path) -> None:
    for name in ("audit.html", "audit.json"):
        tied.save(tmp_path / name, name="rotation", about={"seed": 3}, date="2026-01-02")
    page = (tmp_path / "audit.html").read_text()
    saved = saved_verdicts(json.loads((tmp_path / "audit.json").read_text()))
    assert audit_page(saved.records) == page
    assert all(said in page for said in ("rotation", "2026-01-02", wm.__version__, torch.__version__))
    assert len(page) < 1_000_000


def test_a_notebook_shows_the_verdict(tied: Verdict) -> None:
    assert "Tied to its solver" in tied._repr_html_()


def test_a_view_keeps_directions_and_finds_its_way_back() -> None:
    points = np.random.default_rng(0).normal(size=(25, 40, 2))
    points[-1] *= 300
    view = View.around(points, [])
    assert view.scale is not None
    shown = view(points)
    assert np.abs(view.back(shown) - points)[np.abs(shown) < 1].max() < 1e-6
    away, drawn = points - view.centre, shown
    assert np.allclose(away[..., 0] * drawn[..., 1], away[..., 1] * drawn[..., 0])


def test_what_is_not_finite_lies_outside_of_the_view() -> None:
    view = View.around(np.random.default_rng(0).normal(size=(3, 9, 2)), [])
    assert (np.abs(view(np.array([[np.nan, 0.0], [np.inf, 1.0]]))).max(axis=1) > 1).all()


def test_a_polygon_is_read_between_its_corners() -> None:
    states = np.array([0.0, 1.0, 0.0])[:, None, None] * np.ones((1, 4, 2))
    again = resampled(states, np.array([0.0, 0.25, 1.0]))
    assert again[FRAMES // 4] == pytest.approx(np.ones((4, 2)))
    assert again[FRAMES // 8] == pytest.approx(np.full((4, 2), 0.5))
    assert again[-1] == pytest.approx(np.zeros((4, 2)))


def test_one_direction_is_enough_for_a_projection() -> None:
    project = Projection.of(np.linspace(0, 1, 12).reshape(3, 4, 1))
    assert project(np.ones((3, 4, 1))).shape == (3, 4, 2)


def test_a_sampler_shows_what_it_draws_beside_real_samples() -> None:
    torch.manual_seed(0)
    sampler = wm.Sampler(Turning(), wm.FixedStep("euler", step=1 / 2))
    verdict = wm.audit(sampler, torch.randn(50, 3), data=torch.randn(70, 3))
    scene = scene_of(verdict)
    assert (scene["kind"], scene["real"].shape) == ("samples", (70, 2))
    assert all(rung["samples"].shape == (50, 2) for rung in scene["rungs"])
    assert scene["rungs"][scene["own"]]["score"] == pytest.approx(verdict.own.metric)
    assert audit_page([{**verdict.to_dict(), "scene": scene}])


class Brighter(nn.Module):
    """Makes images brighter, the right half less so."""

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return torch.linspace(1, 0, x.shape[-1]).expand(x.shape)


def test_a_sampler_of_images_shows_them_as_such() -> None:
    torch.manual_seed(0)
    sampler = wm.Sampler(Brighter(), wm.FixedStep("euler", step=1 / 2))
    real = torch.rand(30, 3, 70, 8)
    scene = scene_of(wm.audit(sampler, torch.zeros(30, 3, 70, 8), data=real))
    assert scene["thumbnail"] == [23, 2, 3]  # shrunk by three, so that the longer side takes 32 pixels at most
    assert scene["real_thumbnails"].shape == (25, 23, 2, 3)
    drawn = scene["rungs"][scene["own"]]["thumbnails"]
    assert drawn.shape == (25, 23, 2, 3)
    assert (drawn[:, :, 0] > 200).all()
    assert (drawn[:, :, 1] < 180).all()
    assert len(audit_page([{**a_record(), "scene": scene}]).encode()) < 1_000_000


@pytest.mark.parametrize("shape", [(9, 2), (9, 3, 4, 4), (9, 4, 8, 8), (9, 12, 12)])
def test_what_is_no_image_has_no_thumbnails(shape: tuple[int, ...]) -> None:
    assert Thumbnails.of(np.zeros(shape), sets=3) is None


@pytest.mark.parametrize(("shape", "count"), [((50, 28, 28, 1), 25), ((50, 3, 32, 32), 9), ((2, 1, 8, 8), 1)])
def test_there_are_as_many_thumbnails_as_a_page_has_room_for(shape: tuple[int, ...], count: int) -> None:
    thumbnails = Thumbnails.of(np.random.default_rng(0).random(shape), sets=12)
    assert thumbnails is not None
    assert thumbnails.count == count
    assert 12 * count * np.prod(thumbnails.size) <= THUMBNAIL_BYTES


def test_without_labels_a_scene_tells_how_far_outputs_move() -> None:
    verdict = wm.audit(
        nn.Sequential(wm.ODEBlock(wm.Autonomous(nn.Linear(2, 2)), wm.FixedStep("euler", step=1 / 2))), RING
    )
    scene = scene_of(verdict)
    assert scene["labels"] is None
    assert scene["rungs"][scene["own"]]["score"] == verdict.own.metric == 0
    assert scene["rungs"][-1]["score"] == verdict.reference.metric


@pytest.mark.parametrize("inputs", [RING[:1], RING[:1].repeat(30, 1), RING.bfloat16()], ids=["one", "alike", "short"])
def test_a_page_is_made_of_a_single_sample_of_samples_in_one_place_and_in_sixteen_bits(inputs: torch.Tensor) -> None:
    block = wm.ODEBlock(wm.Autonomous(nn.Linear(2, 2)), wm.FixedStep("euler", step=1 / 2))
    model = nn.Sequential(block, nn.Linear(2, 2)).to(inputs.dtype)
    verdict = wm.audit(model, (inputs, torch.zeros(len(inputs))))
    page = audit_page([{**verdict.to_dict(), "scene": scene_of(verdict)}])
    assert '"inputs":' in page
    assert np.isfinite(scene_of(verdict)["inputs"]).all()


def test_real_samples_in_sixteen_bits_are_shown() -> None:
    sampler = wm.Sampler(Turning(), wm.FixedStep("euler", step=1 / 2), order="xt")
    scene = scene_of(wm.audit(sampler, RING, data=RING.bfloat16()))
    assert scene["real"].shape == (60, 2)
