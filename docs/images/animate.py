"""Draws README's first picture from the demo's page: the same weights from a coarse step to the flow, and back.

    windermere demo && python docs/images/animate.py runs/demo/index.html docs/images/demo.webp

It needs playwright and a Chromium (the extra `dev`, and `chromium` on the path or in WINDERMERE_CHROMIUM).
"""

import io
import os
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

WIDTH = 1040
REST, MOVE, PAUSE = 620, 50, 2200
"""Milliseconds: at a stop, while the step changes, and at both ends of the story."""
SHARES = (0.35, 0.75)
"""Of the way from one stop to the next: what is drawn between them."""
STYLE = """
.top, .head, .overview, #verdicts, .tools, .legend, .ticks, #player h2, .skip { display: none !important; }
body { padding: 0 !important; max-width: none !important; } #player { border: 0 !important; margin: 0 !important; }
.picture figcaption { height: 4.2em; }
"""


def frames_of(page: Page) -> tuple[list[Image.Image], list[int]]:
    """Pictures of the player at every stop of the ladder, and how long each is shown."""
    stops = page.evaluate("page.player.stops.map((stop) => stop.apart ? 'own' : stop.name)")
    pictures, times = [], []

    def shoot(milliseconds: int) -> None:
        shot = page.locator("#player").screenshot(animations="disabled")
        pictures.append(Image.open(io.BytesIO(shot)).convert("RGB"))
        times.append(milliseconds)

    for stop, name in enumerate(stops):
        page.evaluate(f"page.player.go({stop})")
        if stop:
            for share in SHARES:
                page.evaluate(f"page.player.redraw({share})")
                shoot(MOVE)
        page.evaluate("page.player.redraw()")
        shoot(PAUSE if name in ("own", "2 steps", "512 steps", "the flow") else REST)
    return pictures, times


def main(source: str, target: str) -> None:
    names = (os.environ.get("WINDERMERE_CHROMIUM") or "", "chromium", "chromium-browser", "google-chrome")
    found = next(path for name in names if name and (path := shutil.which(name)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 900}, reduced_motion="reduce", color_scheme="light")
        page.goto(Path(source).resolve().as_uri())
        page.wait_for_selector("html[data-ready]", state="attached")
        page.add_style_tag(content=STYLE)
        pictures, times = frames_of(page)
        browser.close()
    height = min(picture.height for picture in pictures)
    first, *rest = (picture.crop((0, 0, picture.width, height)) for picture in pictures)
    first.save(target, save_all=True, append_images=rest, duration=times, loop=0, quality=72, method=4)
    print(f"{target}: {1 + len(rest)} frames, {Path(target).stat().st_size / 1e6:.2f} MB, {first.size}")


if __name__ == "__main__":
    main(*sys.argv[1:])
