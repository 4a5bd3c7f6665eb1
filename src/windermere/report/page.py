"""One file with all of a report: verdicts, pictures to play with, tables, evidence, where it all comes from.

It is made from plain records, each a dict as `Verdict.to_dict` gives it, with three optional entries more: `name`,
`provenance` (a flat dict) and `scene` (what `windermere.auditing.scene` makes). No network and no server is needed.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from math import isqrt
from typing import Any

import numpy as np

from windermere.errors import UsageError
from windermere.report import html, words
from windermere.report.html import element
from windermere.report.packing import pack, unpack
from windermere.report.words import Record

STYLES = ("page.css", "player.css")
SCRIPTS = (
    "base.js",
    "decode.js",
    "colours.js",
    "chart.js",
    "plane.js",
    "moved.js",
    "stops.js",
    "controls.js",
    "player.js",
    "page.js",
)
MOST = 980_000
"""Bytes of a page, as far as scenes decide it."""
FEWEST_POINTS = 20
DETAILS = element("h2", "In detail", class_="visually-hidden")
"""Screen readers meet headings in order: of one verdict alone the page's first heading tells it."""
SIDE_BY_SIDE = 3
"""Up to so many models are played with side by side; of more, the one that is chosen."""


def audit_page(records: Sequence[Record], *, title: str | None = None, lead: str | None = None) -> str:
    """The page of one verdict or more, such as the seeds of a run. The same records give the same page."""
    if not records:
        raise UsageError("a report needs a verdict, and there is none")
    named = [{**record, "name": str(record.get("name") or f"model {i}")} for i, record in enumerate(records, start=1)]
    heading = title or (f"Audit of {named[0]['name']}" if len(named) == 1 else f"Audit of {len(named)} models")
    bare = _assembled([{**record, "scene": None} for record in named], heading, lead)
    scenes = _fitting([record.get("scene") for record in named], MOST - len(bare.encode()))
    whole = [{**record, "scene": scene} for record, scene in zip(named, scenes, strict=True)]
    return _assembled(whole, heading, lead)


def _assembled(whole: Sequence[Record], heading: str, lead: str | None) -> str:
    side_by_side = len(whole) <= SIDE_BY_SIDE
    parts = {
        "title": escape(heading),
        "style": "\n".join(_asset(name) for name in STYLES),
        "header": _header(heading, lead, whole),
        "player": _player(whole) + _overview(whole) if side_by_side else _overview(whole) + _player(whole),
        "verdicts": "".join(_verdict(record, i, alone=len(whole) == 1) for i, record in enumerate(whole)),
        "data": _embedded({"records": whole, "sideBySide": side_by_side}),
        "script": "\n".join(_asset(name) for name in SCRIPTS),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("page.html"))


def _asset(name: str) -> str:
    return resources.files("windermere.report").joinpath("assets", name).read_text(encoding="utf-8")


def _embedded(value: Any) -> str:
    """JSON that no HTML parser takes for the end of its element."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _fitting(scenes: Sequence[Any], room: int) -> list[dict[str, Any] | None]:
    """Scenes, packed, with as many points each as there is room for; where that is too little, only the first ones."""
    packed = [None if scene is None else pack(scene) for scene in scenes]
    share = room / max(1, sum(map(_size, packed)))
    if share < 1:
        packed = [None if scene is None else pack(_thinned(unpack(scene), share)) for scene in packed]
    taken = [sum(map(_size, packed[: i + 1])) for i in range(len(packed))]
    return [scene if upto <= room else None for scene, upto in zip(packed, taken, strict=True)]


def _size(scene: Any) -> int:
    return len(_embedded(scene))


def _thinned(scene: dict[str, Any], share: float) -> dict[str, Any]:
    """Fewer points, the first ones. Whatever has an entry for each point has the points along the same axis in all."""
    points = int(scene.get("points") or 0)
    kept = max(FEWEST_POINTS, int((points or len(scene.get("real", ()))) * share * 0.95))  # samples are no points

    def fewer(value: Any, name: str = "") -> Any:
        if name.endswith("thumbnails"):
            return value[: max(1, isqrt(int(len(value) * share * 0.95))) ** 2]
        if isinstance(value, np.ndarray) and name not in ("map", "background", "bins"):
            return value[:, :kept] if value.ndim == 3 else value[:kept]
        if isinstance(value, Mapping):
            return {key: fewer(each, key) for key, each in value.items()}
        return [fewer(each) for each in value] if isinstance(value, list) else value

    made: dict[str, Any] = fewer(scene)
    return {**made, "points": min(points, kept)}


def _header(heading: str, lead: str | None, records: Sequence[Record]) -> str:
    if len(records) == 1:
        record = records[0]
        answer = element("p", html.badge(record)) + element("h1", escape(words.headline(record)))
        name = element("p", escape(heading), class_="eyebrow")
        return name + answer + html.paragraphs((lead, record.get("recommendation")), "lead") + html.numbers(record)
    return element("h1", escape(heading)) + html.paragraphs((lead or _tally(records),), "lead")


def _tally(records: Sequence[Record]) -> str:
    """How many verdicts of each kind there are, in a sentence."""
    titles = Counter(words.outcome_words(record).title.lower() for record in records)
    return "; ".join(f"{count} of {len(records)}: {title}" for title, count in titles.most_common()) + "."


def _overview(records: Sequence[Record]) -> str:
    """The verdicts of all, a row each; one alone stands above."""
    if len(records) == 1:
        return ""
    titles = ("model", "verdict", "own solver", "under the flow", "difference (95%)", "safe step")
    head = element("tr", *(element("th", name, scope="col") for name in titles))
    rows = "".join(_overview_row(record) for record in records)
    inner = element("table", element("thead", head), element("tbody", rows))
    return element("div", inner, class_="scroll overview", tabindex="0", role="region", aria_label="All verdicts")


def _overview_row(record: Record) -> str:
    cells = (
        words.score_words(record, words.own_score(record)),
        words.score_words(record, words.flow_score(record)),
        html.difference(record, record.get("gap") or {}),
        html.safe_words(record),
    )
    name = element("th", escape(str(record["name"])), scope="row")
    return element("tr", name, element("td", html.badge(record)), *(element("td", escape(cell)) for cell in cells))


def _player(records: Sequence[Record]) -> str:
    """A place for the pictures to play with, which the script fills."""
    if all(record["scene"] is None for record in records):
        return ""
    script = element("noscript", element("p", "The pictures to play with need JavaScript; all numbers are below."))
    return element("section", script, id="player", aria_label="Drag the step")


def _verdict(record: Record, index: int, *, alone: bool) -> str:
    """All details of one model."""
    name = element("h2", html.badge(record), " ", escape(str(record["name"])), class_="name") if not alone else DETAILS
    told = html.paragraphs((words.headline(record),), "headline") if not alone else ""
    advice = () if alone else (record.get("recommendation"),)
    sections = (
        name + told + html.paragraphs((record.get("sentence"), *advice)) + ("" if alone else html.numbers(record)),
        _section("The same weights, other solvers", _figure("metric") + html.table(record) + _downloads(index)),
        _section("Where the safe step is", _figure("safe")) if _ladder(record) else "",
        _section("How outputs move", _figure("moved")) if _moves(record) else "",
        _section("Evidence: it explains the verdict, and never decides it", html.evidence(record)),
        _section("Notes", html.paragraphs(record["notes"])) if record.get("notes") else "",
        _section("Where this comes from", html.definitions(_provenance(record))),
    )
    return element("article", *sections, class_="verdict", data_index=index, aria_label=str(record["name"]))


def _section(title: str, inner: str) -> str:
    return element("section", element("h3", escape(title)), inner)


def _figure(kind: str) -> str:
    return element("div", class_="figure", data_figure=kind)


def _ladder(record: Record) -> bool:
    safe = record.get("safe")
    return isinstance(safe, Mapping) and len(safe.get("ladder") or ()) > 1


def _moves(record: Record) -> bool:
    scene = record.get("scene")
    return scene is not None and any("moved" in rung for rung in scene.get("rungs", ()))


def _downloads(index: int) -> str:
    kinds = (("csv", "Table as CSV"), ("json", "Verdict as JSON"))
    made = (element("button", text, type="button", data_download=kind, data_index=index) for kind, text in kinds)
    return element("p", *made, class_="downloads")


def _provenance(record: Record) -> dict[str, Any]:
    cost = record.get("evaluations")
    paid = f"{cost:.0f} passes with its own solver" if isinstance(cost, int | float) else None
    own = record.get("own") or {}
    samples = f"{record.get('samples')} ({record.get('population')})"
    return {"solver": own.get("solver"), "samples": samples, "audit's cost": paid, **(record.get("provenance") or {})}
