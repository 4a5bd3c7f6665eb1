"""The page as text: what it says, what it holds, and what it never does."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.report.kinds import some_images
from tests.report.records import a_line, a_record, a_scene
from windermere.errors import UsageError
from windermere.report.html import short
from windermere.report.page import audit_page
from windermere.report.reading import saved_verdicts
from windermere.report.words import headline

ASSETS = Path(__file__).parents[2] / "src" / "windermere" / "report" / "assets"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "works with its own solver only: solved more accurately, the same weights get 63.0% right instead of"),
        ({"outcome": "FLOW", "reference": {"metric": 0.998}}, "is an ODE: solved more accurately, it scores about"),
        ({"outcome": "FLOW", "reference": {"metric": 1.0}}, "it scores the same (100.0%)."),
        ({"outcome": "UNDECIDED"}, "It could not be decided whether this model is an ODE."),
        ({"reference": {"metric": 0.99}}, "with euler, h = 1/4, whose error is no larger, it gets 60.0% right"),
        ({"metric": "log_error", "threshold": 0.3}, "the same weights score 0.630 instead of 1.000."),
        ({"outcome": "STRANGE"}, "The audit's answer is STRANGE"),
        ({"reference": {"metric": None}}, "This model works with its own solver only."),
        ({"kind": "sets", "reference": {"metric": -0.0015}}, "samples at a distance of about 0 from real ones"),
        ({"kind": "likelihood", "metric": "nll"}, "give a negative log-likelihood of 0.630 instead of 1.000 (lower is"),
    ],
)  # fmt: skip
def test_the_headline_tells_a_manager_what_the_verdict_means(values: dict[str, Any], said: str) -> None:
    assert said in headline(a_record(**values))


def test_the_page_holds_the_numbers_with_their_intervals_and_the_evidence_with_its_limits() -> None:
    page = audit_page([a_record(name="my model", provenance={"date": "2026-01-02", "torch": "2.13.0"})])
    for said in (
        "Tied to its solver", "my model", "−37.0 points", "95% interval: −39.9 to −33.9 points", "1/8", "63.0%",
        "What it proves:", "What it does not prove:", "2026-01-02", "2.13.0", "a note", "failed: it blew up",
    ):  # fmt: skip
        assert said in page


def test_missing_numbers_are_not_known() -> None:
    record = a_record(
        outcome="UNDECIDED", gap=None, agreement=None, safe_step=None, reference={"converged": False, "reason": "stiff"}
    )
    record["safe"] = {"precision": None, "solver": None, "ladder": []}
    record["table"] = [a_line("euler, h = 1", 1, 0.5, gap=None, error=None, agreement_reference=None, evaluations=0)]
    page = audit_page([record])
    assert page.count("not known") >= 6
    assert "stiff" in page
    assert "nan" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL).lower()


def test_a_record_of_the_least_that_can_be_makes_a_page() -> None:
    assert "Undecided" in audit_page([{"outcome": "UNDECIDED", "own": {}}])


def test_no_text_of_a_record_becomes_markup() -> None:
    evil = "<img src=x onerror=alert(1)></script>{{data}}"
    page = audit_page([a_record(name=evil, sentence=evil, notes=[evil], evidence=[{"name": evil, "finding": evil}])])
    assert "<img" not in page
    assert page.count("</script>") == 3  # those of the page itself


def test_the_page_names_no_host_and_forbids_every_request() -> None:
    page = audit_page([a_record(scene=a_scene())])
    assert "default-src 'none'" in page
    addresses = set(re.findall(r"https?://[^\s\"'<>]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, which nobody asks for
    assert not re.search(r"<(link|iframe|img)\b|@import|\bfetch\(|XMLHttpRequest|WebSocket", page)


def test_the_same_records_give_the_same_page() -> None:
    assert audit_page([a_record(scene=a_scene())]) == audit_page([a_record(scene=a_scene())])


def test_many_scenes_share_the_room_of_one_page() -> None:
    records = [a_record(name=f"seed {i}", scene=a_scene(points=4000)) for i in range(5)]
    page = audit_page(records)
    assert len(page.encode()) < 1_000_000
    assert page.count("<article") == 5


def test_where_there_is_too_little_room_the_first_models_have_pictures() -> None:
    noise = np.random.default_rng(0)
    scenes = [a_scene(points=200) for _ in range(30)]
    for scene in scenes:
        for rung in scene["rungs"]:
            rung["paths"] = noise.uniform(-1, 1, rung["paths"].shape)
            rung["map"] = noise.integers(0, 9, (90, 90), dtype=np.uint8)
    page = audit_page([a_record(name=f"seed {i}", scene=scene) for i, scene in enumerate(scenes)])
    assert len(page.encode()) < 1_000_000
    assert 0 < page.count('"kind":"plane"') < 30


def test_many_samplers_of_images_have_fewer_images_each() -> None:
    noise = np.random.default_rng(0)
    scene = some_images(25) | {"thumbnail": [64, 64, 3]}
    scene["real"] = np.tile(scene["real"], (10, 1))
    for rung in scene["rungs"]:
        rung["samples"] = np.tile(rung["samples"], (10, 1))
        rung["thumbnails"] = noise.integers(0, 255, (25, 64, 64, 3), dtype=np.uint8)
    page = audit_page([a_record(name=f"seed {i}", scene=scene) for i in range(2)])
    assert len(page.encode()) < 1_000_000
    assert page.count('"shape":[4,64,64,3]') == 8
    (samples,) = {int(count) for count in re.findall(r'"shape":\[(\d+),2\]', page)}
    assert samples > len(scene["real"]) / 10  # fewer samples too, in proportion


def test_the_verdicts_of_several_models_are_counted() -> None:
    page = audit_page([a_record(), a_record(outcome="FLOW"), a_record()])
    assert "2 of 3: tied to its solver; 1 of 3: a flow." in page


def test_a_page_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a verdict"):
        audit_page([])


def test_a_notebook_shows_sentence_numbers_and_table() -> None:
    shown = short(a_record())
    for said in ("100.0%", "63.0%", "−37.0 (−39.9 to −33.9)", "rk4, h = 1/2", "Use it with its own solver only."):
        assert said in shown
    assert "<script" not in shown


@pytest.mark.parametrize(
    "saved",
    [
        a_record(name="a"),
        {"a": a_record()},
        [a_record(name="a")],
        {"verdicts": [a_record(name="a")], "title": None, "lead": None},
    ],
)
def test_a_verdict_is_found_whichever_way_it_was_saved(saved: Any) -> None:
    assert [record["name"] for record in saved_verdicts(saved).records] == ["a"]


@pytest.mark.parametrize("saved", [{}, [], 3, {"outcome": "FLOW"}, {"a": 1}, {"verdicts": [1]}, None])
def test_what_is_no_verdict_is_refused(saved: Any) -> None:
    with pytest.raises(UsageError, match="this is no saved verdict"):
        saved_verdicts(saved)


def test_scripts_and_styles_are_short_enough_to_read() -> None:
    files = [file for file in ASSETS.iterdir() if file.suffix in (".js", ".css", ".html")]
    assert len(files) >= 10
    for file in files:
        lines = file.read_text().splitlines()
        assert len(lines) <= 350, file
        assert max(map(len, lines)) <= 260, file


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"kind": "errors", "gap": {"value": 23.2, "low": 23.0, "high": 23.4, "ratio": True}}, "23.2 times"),
        ({"kind": "errors", "metric": "mse", "threshold": 1.5, "band": [0.444, 2.25]}, "all of the roots of mse"),
        ({"kind": "errors", "metric": "mse", "threshold": 1.5, "band": [0.444, 2.25]}, "multiples of the root of mse"),
        ({"kind": "errors", "metric": "mse"}, "the same weights have an error (mse) of 0.63 instead of 1."),
        ({"kind": "movement", "gap": {"value": 0.27, "low": 0.26, "high": 0.28}}, "+27.0 points"),
        ({"kind": "decisions", "reference": {"metric": 0.4}}, "40.0% of its decisions change"),
        ({"kind": "movement", "outcome": "MOVED"}, "its outputs move by 63.0% of their spread"),
        ({"kind": "movement", "reference": {"metric": 1234.4}}, "its outputs move by 1,234 times their spread"),
        ({"kind": "movement", "gap": {"value": 64.0, "low": 58.4, "high": 70.8}}, "+64 times"),
        ({"kind": "likelihood", "metric": "nll", "gap": {"value": 2e-9, "low": -1e-9, "high": 3e-9}}, "+0.000"),
        ({"outcome": "COARSE", "reference": {"metric": 1.2}}, "This model is solved too coarsely"),
        ({"kind": "sets"}, "the verdict looks at the flow alone"),
        ({}, "Solvers in bold count"),
        ({}, "Do trajectories cross? (crossings)"),
        ({"kind": "movement", "threshold": 0.01}, "up to 1 point counts as the same"),
        ({}, "euler, h = 1/8 and everything finer count as the same as the flow"),
    ],
)
def test_errors_are_told_as_ratios_and_movements_as_what_changes(values: dict[str, Any], said: str) -> None:
    assert said in audit_page([a_record(**values)])
