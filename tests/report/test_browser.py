"""The page in a real browser: dragging, following, switching, downloading, both schemes, keyboard, and no request."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.report.opened import Opened, needs_chromium
from tests.report.records import a_line, a_record, a_scene, some_samples
from windermere.report.packing import pack
from windermere.report.page import audit_page

pytestmark = needs_chromium
SETS = {"metric": "distance", "kind": "sets", "threshold": 0.0028869032859802136}


def nearly_exact() -> dict[str, Any]:
    """A regression whose flow is right to the last digit."""
    scene = a_scene() | {"labels": None}
    scene["rungs"] = [rung | {"score": 10.0 ** (-1 - 2.5 * i)} for i, rung in enumerate(scene["rungs"])]
    lines = [a_line(f"euler, h = 1/{2**n}", 2**n, 10.0 ** (1 - 2 * n)) for n in range(1, 8)]
    reference = {"solver": "rk4, h = 1/28", "dtype": "float64", "metric": 2.43e-13, "error": 1e-6, "converged": True}
    squares = {"kind": "errors", "metric": "mse", "threshold": 1.5, "band": [0.0444, 0.225]}
    return a_record(**squares, own=lines[0], table=lines, reference=reference, scene=scene)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    healthy = a_record(name="healthy", outcome="FLOW", scene=a_scene(own=3))
    pages = {
        "one": audit_page([a_record(name="tied", scene=a_scene())]),
        "two": audit_page([a_record(name="tied", scene=a_scene()), healthy]),
        "five": audit_page([a_record(name=f"seed {i}", scene=a_scene(own=i % 3)) for i in range(5)]),
        "samples": audit_page([a_record(name="sampler", **SETS, scene=some_samples())]),
        "squares": audit_page([a_record(kind="errors", metric="mse", threshold=1.5, band=[0.444, 2.25])]),
        "tiny": audit_page([nearly_exact()]),
        "bare": audit_page([a_record(name="bare", gap=None, agreement=None, table=[])]),
    }
    for name, page in pages.items():
        (folder / f"{name}.html").write_text(page)
    return {name: folder / f"{name}.html" for name in pages}


def opened(browser: Any, files: dict[str, Path], name: str, **options: Any) -> Opened:
    return Opened(browser, files[name], **{"viewport": {"width": 1400, "height": 900}, **options})


@pytest.mark.parametrize("name", ["one", "two", "five", "samples", "bare"])
@pytest.mark.parametrize("width", [1400, 400])
def test_a_page_fits_the_screen_asks_for_nothing_and_complains_of_nothing(
    browser: Any, files: dict[str, Path], name: str, width: int
) -> None:
    here = opened(browser, files, name, viewport={"width": width, "height": 800})
    assert here.page.evaluate("document.documentElement.scrollWidth") == width
    here.close()


def test_dragging_the_step_moves_pictures_scores_and_words_together(browser: Any, files: dict[str, Path]) -> None:
    here = opened(browser, files, "one")
    slider, score = here.page.locator("#step"), here.page.locator(".score strong").first
    assert (slider.get_attribute("aria-valuetext"), score.inner_text()) == ("2 steps", "100.0%")
    before, flow = here.pixels(1), here.pixels(3)
    box = slider.bounding_box()
    here.page.mouse.move(box["x"] + box["width"] * 0.21, box["y"] + box["height"] / 2)
    here.page.mouse.down()
    here.page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] / 2, steps=5)
    here.page.mouse.up()
    assert (slider.get_attribute("aria-valuetext"), score.inner_text()) == ("8 steps", "50.0%")
    assert here.page.locator("figcaption").first.inner_text().endswith("20 of 40 wrong.")
    assert here.pixels(1) != before
    assert here.pixels(3) == flow  # the flow stands still
    assert "euler, h = 1/8" in here.page.locator(".confusion caption").inner_text()
    here.close()


def test_the_slider_listens_to_the_keyboard(browser: Any, files: dict[str, Path]) -> None:
    here = opened(browser, files, "one")
    here.page.locator("#step").focus()
    here.page.keyboard.press("End")
    assert here.page.locator("#step").get_attribute("aria-valuetext") == "the flow"
    here.page.keyboard.press("ArrowLeft")
    assert here.page.locator("output").inner_text() == "16 steps"
    here.page.locator("#as-trained").press("Enter")
    assert here.page.locator("output").inner_text() == "2 steps"
    here.close()


def test_models_side_by_side_stop_where_all_of_them_were_solved(browser: Any, files: dict[str, Path]) -> None:
    here = opened(browser, files, "two")
    assert here.page.locator("output").inner_text() == "as trained"
    assert here.page.locator(".score span").all_inner_texts() == ["right, 2 steps", "right, 8 steps"]
    here.page.locator("#as-flow").click()
    assert here.page.locator(".score span").all_inner_texts() == ["right, the flow", "right, the flow"]
    assert here.page.locator(".column h3").all_inner_texts() == ["tied", "healthy"]
    here.close()


def test_play_goes_on_and_pause_stops(browser: Any, files: dict[str, Path]) -> None:
    here = opened(browser, files, "one")
    play = here.page.locator("#play")
    play.click()
    here.page.locator("output", has_text="16 steps").wait_for()
    assert play.get_attribute("aria-label") == "Pause"
    play.click()
    assert play.get_attribute("aria-label") == "Play"
    here.close()


def test_a_point_is_followed_by_a_click_or_by_its_number(browser: Any, files: dict[str, Path]) -> None:
    here = opened(browser, files, "one")
    canvas, words = here.page.locator("canvas").first, here.page.locator("#follow-words")
    side = canvas.bounding_box()["width"]
    before = here.pixels(1)
    canvas.click(position={"x": side * 0.85, "y": side * 0.5})  # the first point lies at (0.7, 0)
    assert words.inner_text() == "Point 1: class 0 with 2 steps, class 0 under the flow."
    assert here.pixels(1) != before
    here.page.locator("#follow").fill("2")
    assert words.inner_text() == "Point 2: class 1 with 2 steps, class 0 (wrong) under the flow."
    here.page.locator("#follow").fill("")
    assert here.pixels(1) == before
    here.close()


def test_a_solver_tells_its_values_to_pointer_and_keyboard(browser: Any, files: dict[str, Path]) -> None:
    here = opened(browser, files, "one")
    points, tooltip = here.page.locator('[data-figure="metric"] .point'), here.page.locator("#tooltip")
    points.first.scroll_into_view_if_needed()
    points.first.hover(force=True)
    assert "euler, h = 1/2 (its own)\naccuracy: 100.0%" in tooltip.inner_text()
    points.first.focus()
    here.page.keyboard.press("ArrowRight")
    assert "euler, h = 1/4" in tooltip.inner_text()
    assert here.page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("euler, h = 1/4")
    here.page.keyboard.press("Escape")
    assert tooltip.is_hidden()
    here.close()


def test_the_switch_shows_one_seed_at_a_time_and_print_shows_all(browser: Any, files: dict[str, Path]) -> None:
    here = opened(browser, files, "five")
    articles = here.page.locator("article.verdict")
    assert [articles.nth(i).is_visible() for i in range(5)] == [True, False, False, False, False]
    assert here.page.locator("output").inner_text() == "1 step"
    here.page.get_by_role("radio", name="seed 2").check(force=True)
    assert [articles.nth(i).is_visible() for i in range(5)] == [False, False, True, False, False]
    assert here.page.locator("output").inner_text() == "4 steps"  # the player goes with it, and says so
    assert here.page.locator("#player h2").inner_text().startswith("Drag the step of seed 2: ")
    here.page.emulate_media(media="print")
    assert all(articles.nth(i).is_visible() for i in range(5))
    here.close()


def test_table_and_verdict_are_downloaded(browser: Any, files: dict[str, Path]) -> None:
    here = opened(browser, files, "one")
    contents = {}
    for kind in ("csv", "json"):
        with here.page.expect_download() as waiting:
            here.page.locator(f'[data-download="{kind}"]').click()
        assert waiting.value.suggested_filename == f"tied.{kind}"
        contents[kind] = Path(waiting.value.path()).read_text()
    lines = contents["csv"].splitlines()
    assert lines[0].startswith("solver,method,precision,metric,gap")
    assert lines[1].startswith('"euler, h = 1/2",euler,0.5,1,')
    assert len(lines) == 5
    assert json.loads(contents["json"]) == {**a_record(name="tied"), "scene": pack(a_scene())}
    here.close()


def test_the_scheme_is_the_systems_until_the_button_changes_it(browser: Any, files: dict[str, Path]) -> None:
    here = opened(browser, files, "one", color_scheme="dark")
    background = "getComputedStyle(document.documentElement).backgroundColor"
    dark, drawn = here.page.evaluate(background), here.pixels(1)
    assert here.page.locator("#theme").get_attribute("aria-pressed") == "true"
    here.page.locator("#theme").click()
    assert here.page.evaluate(background) == "rgb(255, 255, 255)" != dark
    assert here.pixels(1) != drawn
    here.close()


CONTRASTS = """() => {
  const light = (c) => c.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  const luminance = (c) => { const [r, g, b] = light(c); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = numbers(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
  };
  const poor = [];
  for (const e of document.querySelectorAll("main *, .top *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.getClientRects().length || e.closest("svg") && !e.closest("text")) continue;
    const style = getComputedStyle(e);
    const [a, b] = [numbers(e.tagName === "text" ? style.fill : style.color), behind(e)].map(luminance);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(`${e.tagName} ${e.textContent.trim().slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return poor;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["one", "two"])
def test_all_text_has_the_contrast_that_is_asked_for(
    browser: Any, files: dict[str, Path], name: str, scheme: str
) -> None:
    here = opened(browser, files, name, color_scheme=scheme)
    assert here.page.evaluate(CONTRASTS) == []
    here.close()


UNNAMED = """() => [...document.querySelectorAll("button, input, canvas, svg, [tabindex], [role=region]")].filter((e) =>
  !(e.getAttribute("aria-label") || e.getAttribute("aria-hidden") || e.textContent.trim() || e.labels?.length
    || e.id === "main")).map((e) => e.outerHTML.slice(0, 80))"""


@pytest.mark.parametrize("name", ["one", "five", "samples"])
def test_whatever_can_be_focused_or_seen_has_a_name(browser: Any, files: dict[str, Path], name: str) -> None:
    here = opened(browser, files, name)
    assert here.page.evaluate(UNNAMED) == []
    assert here.page.locator("h1").count() == 1
    here.close()


def test_whoever_wants_no_motion_gets_none(browser: Any, files: dict[str, Path]) -> None:
    here = opened(browser, files, "one", reduced_motion="reduce")
    moving = (
        "(() => { let least = 1; const real = mixed; mixed = (a, b, share, room) => { least = Math.min(least, share);"
    )
    moving += " return real(a, b, share, room); }; page.player.go(3); return new Promise((done) => "
    moving += "requestAnimationFrame(() => requestAnimationFrame(() => done(least)))); })()"
    assert here.page.evaluate(moving) == 1
    here.close()


def test_samples_that_were_drawn_change_with_the_steps_and_real_ones_do_not(
    browser: Any, files: dict[str, Path]
) -> None:
    here = opened(browser, files, "samples")
    real, drawn = here.pixels(0), here.pixels(1)
    here.page.locator("#step").press("End")
    assert here.pixels(0) == real
    assert here.pixels(1) != drawn
    assert here.page.locator("figcaption").all_inner_texts() == ["Real samples", "Generated samples"]
    here.close()


def test_the_band_of_mean_squares_is_named_as_it_is_drawn(browser: Any, files: dict[str, Path]) -> None:
    """A factor of 1.5 for roots is one of 2.25 for squares, which are on the axis."""
    here = opened(browser, files, "squares")
    assert "counts as the same: within 2.25 times" in here.page.locator("main").inner_text()
    here.close()


def test_scores_near_zero_are_not_written_as_zero(browser: Any, files: dict[str, Path]) -> None:
    here = opened(browser, files, "tiny")
    here.page.get_by_role("button", name="As the flow").first.click()
    assert here.page.locator(".score strong").first.inner_text() == "3.16e-14"
    here.close()


TICKS = """() => [...document.querySelectorAll("svg[role=group]")[0].querySelectorAll("text[text-anchor=end]")]
  .map((e) => [e.textContent, e.getBoundingClientRect().left])"""
TITLE = """() => document.querySelectorAll("svg[role=group]")[0].querySelector("text[transform]")
  .getBoundingClientRect().right"""


@pytest.mark.parametrize("width", [1400, 400])
def test_powers_along_an_axis_are_few_and_beside_its_title(browser: Any, files: dict[str, Path], width: int) -> None:
    here = opened(browser, files, "tiny", viewport={"width": width, "height": 900})
    ticks = [tick for tick in here.page.evaluate(TICKS) if tick[0] != "the flow itself"]
    assert 3 <= len(ticks) <= 7
    assert min(left for _, left in ticks) > here.page.evaluate(TITLE)
    here.close()


def test_a_page_about_sets_says_what_its_marks_and_safe_steps_mean(browser: Any, files: dict[str, Path]) -> None:
    here = opened(browser, files, "samples")
    said = here.page.locator("main").inner_text()
    assert "counts as the same: within 0.00289\n" in said
    assert "does not count" not in said
    assert "single ones may differ" in said
    here.close()
