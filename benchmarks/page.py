"""The page of an audit: how large it is, how long it takes to make, and how fast a browser redraws it while the step is
dragged. Two models of 200 trajectories each stand side by side; the time is that of one of them."""

import os
import shutil
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

import windermere as wm
from benchmarks.measuring import Bar, keep, show
from benchmarks.users_fields import TimeMLP
from windermere.auditing.saving import record_of, save_records
from windermere.paper import data

REDRAWS = """() => {
  const canvases = [...document.querySelectorAll("canvas")];
  const times = [];
  for (let k = 0; k < 80; k++) {
    page.player.go(k % page.player.stops.length);
    const before = performance.now();
    page.player.redraw(0.5);
    canvases.forEach((canvas) => canvas.getContext("2d").getImageData(0, 0, 1, 1));
    times.push(performance.now() - before);
  }
  return times.sort((a, b) => a - b)[40];
}"""
"""The median of redraws, each waited for: a browser would put drawing off."""


def run() -> list[Bar]:
    file = Path(tempfile.mkdtemp()) / "audit.html"
    seconds = make_page(file)
    size, redraw = file.stat().st_size, redraw_time(file)
    found = {"bytes": size, "seconds": seconds, "redraw_ms": redraw}
    show("The page of two audits", found)
    keep("page", found)
    bars = [
        Bar(name="the page's size", measured=size / 1e6, limit=1.0, at_least=False, unit=" MB"),
        Bar(name="making the page of a model", measured=seconds / 2, limit=3.0, at_least=False, unit=" s"),
    ]
    if redraw is not None:
        bars.append(Bar(name="redrawing 200 trajectories", measured=redraw / 2, limit=16.0, at_least=False, unit=" ms"))
    return bars


def make_page(file: Path) -> float:
    """Two models that were not trained: what they have learned changes no time. Seconds for both, audits aside."""
    torch.manual_seed(0)
    models = [
        nn.Sequential(wm.ODEBlock(TimeMLP(), wm.FixedStep.of("euler", steps=n)), nn.Linear(2, 2)) for n in (2, 96)
    ]
    verdicts = [wm.audit(model, data.load("sphere2").test) for model in models]
    begun = time.perf_counter()
    save_records([record_of(verdict, name=f"model {i}") for i, verdict in enumerate(verdicts)], file)
    return time.perf_counter() - begun


def redraw_time(file: Path) -> float | None:
    """Milliseconds, None where there is no browser."""
    names = (os.environ.get("WINDERMERE_CHROMIUM") or "", "chromium", "chromium-browser", "google-chrome")
    chromium = next((path for name in names if name and (path := shutil.which(name))), None)
    if chromium is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900}, device_scale_factor=2)
        page.goto(file.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached")
        taken = float(page.evaluate(REDRAWS))
        browser.close()
    return taken
