"""Every kind of page: accessible by axe, on a desk and on a phone, light and dark, and readable on paper."""

from pathlib import Path
from typing import Any

import pytest

from tests.report.kinds import pages
from tests.report.opened import TWO_FRAMES, Opened, needs_chromium

pytestmark = needs_chromium
PAGES = pages()


def opened(browser: Any, folder: Path, name: str, **options: Any) -> Opened:
    file = folder / "page.html"
    file.write_text(PAGES[name])
    return Opened(browser, file, **{"viewport": {"width": 1400, "height": 900}, "reduced_motion": "reduce", **options})


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_on_a_page_light_or_dark_on_a_desk_or_a_phone(
    browser: Any, tmp_path: Path, name: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed").Axe()
    here = opened(browser, tmp_path, name)
    for width, scheme in ((1400, "light"), (1400, "dark"), (400, "dark"), (400, "light")):
        here.page.set_viewport_size({"width": width, "height": 900})
        here.page.emulate_media(color_scheme=scheme)
        here.page.wait_for_selector(f"html[data-theme={scheme}]", state="attached")
        assert here.page.evaluate("document.documentElement.scrollWidth") == width
        found = axe.run(here.page, options={"resultTypes": ["violations"]}).response["violations"]
        assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == []
    here.close()


SHOWN = """() => [...document.querySelectorAll("button, input, .skip, #tooltip")]
  .filter((e) => e.getClientRects().length).map((e) => e.outerHTML.slice(0, 60))"""
CUT = """() => [...document.querySelectorAll(".scroll")].filter((e) => e.getClientRects().length
  && e.scrollWidth > e.clientWidth && getComputedStyle(e).overflowX !== "visible").map((e) => e.outerHTML)"""
EMPTY = """() => [...document.querySelectorAll("[data-figure]")]
  .filter((e) => !e.children.length).map((e) => e.outerHTML)"""


@pytest.mark.parametrize("name", PAGES)
def test_paper_is_light_has_every_figure_and_no_controls_and_cuts_no_table(
    browser: Any, tmp_path: Path, name: str
) -> None:
    here = opened(browser, tmp_path, name, color_scheme="dark", viewport={"width": 720, "height": 1000})
    here.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    here.page.emulate_media(media="print")
    assert here.page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert [here.page.evaluate(ask) for ask in (SHOWN, CUT, EMPTY)] == [[], [], []]
    assert here.page.evaluate("document.documentElement.scrollWidth") == 720
    here.page.emulate_media(media="screen")
    here.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert here.page.evaluate("document.documentElement.dataset.theme") == "dark"
    here.close()


def test_images_change_with_the_steps_and_real_ones_do_not(browser: Any, tmp_path: Path) -> None:
    here = opened(browser, tmp_path, "image sampler")
    assert here.page.locator("#as-trained").inner_text() == "Own solver"  # flow matching trains without one
    assert here.page.locator(".legend").first.inner_text() == "its own solver"
    real, drawn = here.pixels(0), here.pixels(1)
    here.page.locator("#step").press("End")
    assert here.pixels(0) == real
    assert here.pixels(1) != drawn
    assert here.page.locator("figcaption").all_inner_texts()[:2] == ["Real samples", "Generated samples, with 8 steps"]
    here.close()


def test_samples_without_labels_take_the_colour_of_what_is_decided(browser: Any, tmp_path: Path) -> None:
    here = opened(browser, tmp_path, "decisions")
    ask = "[0, 1].map((i) => classOf({ classes: 2, labels: null }, { decided: [1, 0] }, i))"
    assert here.page.evaluate(ask) == [1, 0]
    assert "decided as class 1" in here.page.locator(".legend").first.inner_text()
    here.close()


def test_a_screen_reader_hears_the_score_where_the_slider_comes_to_rest(browser: Any, tmp_path: Path) -> None:
    here = opened(browser, tmp_path, "demo")
    here.page.locator("#step").press("End")
    here.page.locator("#said", has_text="the flow").wait_for(state="attached")
    names = ("trained with 2 Euler steps", "trained with adapted steps")
    assert here.page.locator("#said").inner_text() == f"the flow: {names[0]}: 50.0% right; {names[1]}: 50.0% right"
    assert here.page.locator("#said").get_attribute("aria-live") == "polite"
    here.close()


def test_the_keyboard_meets_the_controls_in_the_order_in_which_they_stand(browser: Any, tmp_path: Path) -> None:
    here = opened(browser, tmp_path, "plane")
    met = []
    for _ in range(8):
        here.page.keyboard.press("Tab")
        met.append(here.page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert met == ["skip", "theme", "step", "play", "as-trained", "as-flow", "ghost", "follow"]
    here.close()


COVERED = """() => [...document.querySelectorAll(".curve svg")].flatMap((svg) => {
  const boxes = [...svg.querySelectorAll("text, circle")].map((e) => [e, e.getBoundingClientRect()]);
  return boxes.flatMap(([e, a]) => e.tagName !== "text" ? [] : boxes.filter(([other, b]) => other !== e
    && a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom).map(() => e.textContent)); })"""


def test_no_mark_and_no_other_name_covers_a_name_beside_a_curve(browser: Any, tmp_path: Path) -> None:
    here = opened(browser, tmp_path, "demo")
    here.page.set_viewport_size({"width": 320, "height": 900})
    here.page.evaluate(TWO_FRAMES)
    assert here.page.evaluate("document.querySelector('.curve svg').viewBox.baseVal.width") < 400
    assert here.page.evaluate(COVERED) == []
    here.close()


HIDDEN = """() => [...document.querySelectorAll("[data-figure] > svg")].flatMap((svg) => {
  const boxes = [...svg.querySelectorAll("text, .point path, .point circle:not([fill=transparent])")]
    .map((e) => [e, e.getBoundingClientRect()]);
  return boxes.flatMap(([e, a]) => e.tagName !== "text" || e.textContent === "the flow itself" ? [] :
    boxes.filter(([other, b]) => other !== e && a.left < b.right && b.left < a.right && a.top < b.bottom
      && b.top < a.bottom).map(([other]) => [e.textContent, other.outerHTML])); })"""


@pytest.mark.parametrize("name", ["plane", "regression", "likelihood", "movement", "sampler"])
def test_no_mark_covers_a_name_in_a_chart_on_a_desk_or_a_phone(browser: Any, tmp_path: Path, name: str) -> None:
    here = opened(browser, tmp_path, name)
    assert here.page.evaluate(HIDDEN) == []
    here.page.set_viewport_size({"width": 400, "height": 900})
    here.page.evaluate(TWO_FRAMES)
    assert here.page.evaluate("document.querySelector('[data-figure=metric] svg').viewBox.baseVal.width") < 400
    assert here.page.evaluate(HIDDEN) == []
    here.close()


def test_a_page_without_pictures_offers_no_point_to_follow(browser: Any, tmp_path: Path) -> None:
    here = opened(browser, tmp_path, "curve")
    assert here.page.locator("#step").is_visible()
    assert here.page.locator("#follow").count() == 0
    assert here.page.locator("#follow-words").inner_text() == ""
    assert here.page.locator(".legend").first.inner_text() == "the solver it was trained with"
    here.close()
