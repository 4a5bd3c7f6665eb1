"""The words and numbers of a verdict as HTML: for a page, and in short for notebooks."""

from collections.abc import Iterable, Mapping
from html import escape
from math import log
from typing import Any

from windermere.report import words
from windermere.report.numbers import rough
from windermere.report.words import NOT_KNOWN, Record

BOLD = "Solvers in bold count: they are at least as accurate as its own."
BOLD_ALONE = "Solvers in bold are at least as accurate as its own; the verdict looks at the flow alone."
COLUMNS = ("solver", "score", "difference from own", "same as own", "same as flow", "distance from flow", "evaluations")


def element(name: str, *inner: str, **attributes: str | int | bool | None) -> str:
    """`element("p", text, class_="lead")`; what is inside must be HTML already."""
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    told = "".join(
        f" {key}" if value is True else f' {key}="{escape(str(value))}"'
        for key, value in given.items()
        if value is not None and value is not False
    )
    return f"<{name}{told}>{''.join(inner)}</{name}>"


def badge(record: Record) -> str:
    """The outcome in two or three words, coloured by whether it is good."""
    told = words.outcome_words(record)
    return element("span", escape(told.title), class_=f"badge {told.tone}")


def numbers(record: Record) -> str:
    """The five numbers of a verdict, each with its name and what it rests on."""
    own, reference = _part(record, "own"), _part(record, "reference")
    about = f"{record.get('samples', NOT_KNOWN)} samples ({record.get('population') or 'all'})"
    changed = record.get("kind") in words.WITHOUT_LABELS
    with_own = "Changed with its own solver" if changed else "With its own solver"
    under = "Changed under the flow" if changed else "Under the flow"
    cards = (
        _card(with_own, words.score_words(record, words.own_score(record)), str(own.get("solver", ""))),
        _card(under, words.score_words(record, words.flow_score(record)), _reference(reference)),
        _gap_card(record),
        _card("Same outputs", words.share_words(record.get("agreement")), f"own solver and flow, on {about}"),
        _safe_card(record),
    )
    return element("ul", *cards, class_="numbers")


def _card(name: str, value: str, below: str, extra: str = "") -> str:
    inner = element("span", escape(name), class_="name") + element("strong", escape(value))
    return element("li", inner, extra, element("span", escape(below), class_="below"))


def _reference(reference: Mapping[str, Any]) -> str:
    if not reference.get("converged", True):
        return str(reference.get("reason") or "the exact solution was not found")
    solver = reference.get("solver")
    return f"the exact solution: {solver}, {reference.get('dtype')}" if solver else "the exact solution"


def _gap_card(record: Record) -> str:
    gap = _part(record, "gap")
    told = _other_way(record, gap, "value")
    if told == NOT_KNOWN:
        return _card("Difference under the flow", NOT_KNOWN, "the flow is not known")
    low, high = (_other_way(record, gap, end) for end in _ends(record, gap))
    interval = "too few samples for an interval" if NOT_KNOWN in (low, high) else f"95% interval: {low} to {high}"
    below = f"{interval}; up to {words.threshold_words(record)} counts as the same"
    if words.of_roots(record):
        below += f"; all of the roots of {words.metric_name(record)}"
    return _card("Difference under the flow", told, below.replace(" points to", " to"), _interval(record, gap))


def difference(record: Record, gap: Mapping[str, Any]) -> str:
    """A gap and its interval as what the other score is more, or less, than the own one."""
    value, low, high = (_other_way(record, gap, name) for name in ("value", *_ends(record, gap)))
    return (
        NOT_KNOWN
        if value == NOT_KNOWN
        else f"{value} ({'no interval' if NOT_KNOWN in (low, high) else f'{low} to {high}'})".replace(
            " points", ""
        ).replace(" times to", " to")
    )


def _is_turned(record: Record, gap: Mapping[str, Any]) -> bool:
    """Gaps are the own score minus the other, and pages tell what the other is more; ratios and movements stay."""
    return not gap.get("ratio") and record.get("kind") not in words.WITHOUT_LABELS


def _ends(record: Record, gap: Mapping[str, Any]) -> tuple[str, str]:
    """The names of a gap's lower and upper end as a page tells it."""
    return ("high", "low") if _is_turned(record, gap) else ("low", "high")


def _other_way(record: Record, gap: Mapping[str, Any], name: str) -> str:
    """One of a gap's numbers as a page tells it."""
    value = gap.get(name)
    if not isinstance(value, int | float):
        return NOT_KNOWN
    return (
        f"{value:.3g} times"
        if gap.get("ratio")
        else words.difference_words(record, (-value if _is_turned(record, gap) else value) + 0.0)
    )


def _interval(record: Record, gap: Mapping[str, Any]) -> str:
    """The interval beside the threshold, as a small drawing; the words below tell the same."""
    ratio, limit = bool(gap.get("ratio")), abs(words.number(record.get("threshold"), 0.1))
    ends = [words.number(gap.get(name), 1.0 if ratio else 0.0) for name in (*_ends(record, gap), "value")]
    turned = -1 if _is_turned(record, gap) else 1
    low, high, value = (log(max(end, 1e-300)) for end in ends) if ratio else (turned * end for end in ends)
    limit = abs(log(max(limit, 1e-300))) if ratio else limit
    reach = 1.15 * max(limit, abs(low), abs(high), 1e-300)
    a, b, c, d, e = (round(100 + 96 * each / reach, 1) for each in (-limit, limit, low, high, value))
    drawn = (
        f'<rect x="{a}" y="3" width="{round(b - a, 1)}" height="14" class="allowed"/>'
        f'<line x1="100" x2="100" y1="1" y2="19" class="zero"/><line x1="{c}" x2="{d}" y1="10" y2="10" class="span"/>'
        f'<circle cx="{e}" cy="10" r="4.5" class="value"/>'
    )
    return element("svg", drawn, viewBox="0 0 200 20", class_="interval", aria_hidden="true")


def safe_words(record: Record) -> str:
    """The coarsest safe step or tolerance, or that there is none."""
    safe = _part(record, "safe")
    value = record.get("safe_step", safe.get("precision"))
    return words.precision_words(record, value) if value is not None else "none" if safe.get("ladder") else NOT_KNOWN


def _safe_card(record: Record) -> str:
    told, safe = safe_words(record), _part(record, "safe")
    below = {
        "none": "not even the finest one tried counts as the same as the flow",
        NOT_KNOWN: "the flow is not known",
    }.get(told, f"{safe.get('solver') or 'this one'} and everything finer count as the same as the flow")
    return _card(f"Safe {record.get('precision_name') or 'step'}", told, below)


def table(record: Record) -> str:
    """Every solver that was tried; those the rule looks at stand out."""
    lines = record.get("table") or ()
    if not lines:
        return element("p", "No other solver was tried.")
    head = element("tr", *(element("th", escape(name), scope="col") for name in COLUMNS))
    body = "".join(_row(record, line) for line in lines)
    caption = element("p", BOLD_ALONE if record.get("kind") in words.OF_FLOW_ALONE else BOLD, class_="caption")
    if words.of_roots(record):
        caption += element(
            "p", f"Differences are multiples of the root of {escape(words.metric_name(record))}.", class_="caption"
        )
    whole = element("table", element("thead", head), element("tbody", body))
    return caption + element("div", whole, class_="scroll", tabindex="0", role="region", aria_label="All solvers")


def _row(record: Record, line: Mapping[str, Any]) -> str:
    own = line.get("solver") == _part(record, "own").get("solver")
    name = element("th", escape(str(line.get("solver"))) + (" (its own)" if own else ""), scope="row")
    kind = "own" if own else "counts" if line.get("counts") else None
    if line.get("failed"):
        return element("tr", name, element("td", "failed: " + escape(str(line["failed"])), colspan=len(COLUMNS) - 1))
    cells = (
        words.score_words(record, line.get("metric")),
        difference(record, _part(line, "gap")),
        words.share_words(line.get("agreement_own")),
        words.share_words(line.get("agreement_reference")),
        rough(line.get("error")) if line.get("error") is not None else NOT_KNOWN,
        str(line.get("evaluations") or NOT_KNOWN),
    )
    return element("tr", name, *(element("td", escape(cell)) for cell in cells), class_=kind)


def evidence(record: Record) -> str:
    """Each piece, with what it proves and what it does not."""
    pieces = record.get("evidence") or ()
    if not pieces:
        return element("p", "None was gathered: the verdict stands on the scores alone.")
    return element("ul", *(_piece(piece) for piece in pieces), class_="evidence")


def _piece(piece: Mapping[str, Any]) -> str:
    parts = [
        element("h4", escape(words.evidence_title(str(piece.get("name", ""))))),
        element("p", escape(str(piece.get("finding", "")))),
    ]
    for name, title in (("proves", "What it proves"), ("limits", "What it does not prove")):
        if piece.get(name):
            parts.append(element("p", element("b", f"{title}:"), " ", escape(str(piece[name])), class_=name))
    return element("li", *parts)


def definitions(facts: Mapping[str, Any]) -> str:
    """Names and values, one below the other."""
    shown = ((str(name), NOT_KNOWN if value is None else str(value)) for name, value in facts.items())
    return element("dl", *(element("dt", escape(name)) + element("dd", escape(value)) for name, value in shown))


def paragraphs(texts: Iterable[Any], class_: str | None = None) -> str:
    return "".join(element("p", escape(str(text)), class_=class_) for text in texts if text)


def short(record: Record) -> str:
    """A verdict in a notebook: sentence, numbers and table, with no more style than a line here and there."""
    tone = words.outcome_words(record).tone
    colour = {"good": "#00795a", "bad": "#b8390e"}.get(tone, "#6b7580")
    title = element("strong", escape(words.headline(record)), style=f"color:{colour}")
    rest = paragraphs((record.get("sentence"), record.get("recommendation")))
    shown = element("details", element("summary", "All solvers"), _plain_table(record)) if record.get("table") else ""
    return element("div", element("p", badge(record), " ", title), rest, definitions(_facts(record)), shown)


def _facts(record: Record) -> dict[str, str]:
    name = str(record.get("precision_name") or "step")
    return {
        f"{words.metric_name(record)} with its own solver": words.score_words(record, words.own_score(record)),
        f"{words.metric_name(record)} under the flow": words.score_words(record, words.flow_score(record)),
        "difference under the flow (95%)": difference(record, _part(record, "gap")),
        "same outputs": words.share_words(record.get("agreement")),
        f"safe {name}": safe_words(record),
    }


def _plain_table(record: Record) -> str:
    return table(record).replace(' tabindex="0"', "")


def _part(record: Record, name: str) -> Mapping[str, Any]:
    """A part of a record, empty where it is missing."""
    part = record.get(name)
    return part if isinstance(part, Mapping) else {}
