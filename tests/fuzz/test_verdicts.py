"""Verdicts as JSON: they come back as they went, and damaged ones are refused in a sentence, by Python and by pages."""

import json
from functools import cache
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

import windermere as wm
from tests.auditing.test_known_cases import ring, rotation_verdict
from tests.auditing.test_unlabelled import block
from tests.fuzz.judging import outcome
from tests.fuzz.profiles import examples
from tests.fuzz.strategies import ODD, altered, mostly
from windermere.auditing.saving import record_of
from windermere.cli.report import page_of
from windermere.errors import WindermereError

KINDS = {
    "classes": lambda: rotation_verdict(2),
    "undecided": lambda: rotation_verdict(4, samples=1, metric=lambda outputs, _: outputs[:, 0], threshold=0.1),
    "movement": lambda: wm.audit(block(4), ring()),
}


@cache
def saved(kind: str) -> str:
    """What `verdict.save("verdict.json")` writes."""
    return json.dumps(record_of(KINDS[kind](), name=kind, date="2026-01-01"), allow_nan=False)


@examples("verdicts")
@given(kind=st.sampled_from(list(KINDS)), data=st.data())
def test_a_damaged_verdict_is_read_as_a_whole_one_or_refused(kind: str, data: Any) -> None:
    """What is read of it, is what stands there: writing it again gives the same."""
    whole = {
        name: each for name, each in json.loads(saved(kind)).items() if name not in ("provenance", "scene", "name")
    }
    assert wm.Verdict.from_dict(whole).to_dict() == whole
    changed = data.draw(altered(whole))
    found = outcome(lambda: wm.Verdict.from_dict(changed))
    if isinstance(found, WindermereError):
        return
    again = outcome(lambda: wm.Verdict.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False))))
    assert again.to_dict() == found.to_dict()
    str(found)


@examples("verdicts")
@given(kind=st.sampled_from(list(KINDS)), data=st.data())
def test_a_damaged_verdict_makes_a_page_or_is_refused(kind: str, data: Any) -> None:
    value = json.loads(saved(kind))
    form = data.draw(st.sampled_from(["alone", "list", "several", "by name"]))
    held: Any = {
        "alone": value,
        "list": [value],
        "several": {"verdicts": [value], "title": None},
        "by name": {"a": value},
    }
    page = outcome(lambda: page_of(data.draw(altered(held[form]))))
    if not isinstance(page, WindermereError):
        assert page.startswith("<!doctype html>")


targets = mostly(st.one_of(st.none(), st.just("labels"), st.just("numbers")))
metrics = mostly(
    st.sampled_from([None, "accuracy", "rmse", "mse", "mae", "r2", "nll"]), st.one_of(ODD, st.just("energy-drift"))
)


@examples("metrics")
@given(
    given_targets=targets,
    metric=metrics,
    threshold=mostly(st.one_of(st.none(), st.floats(0, 3))),
    samples=mostly(st.sampled_from([None, 1, 5])),
    scale=st.sampled_from([1.0, 1.0, 0.0, 1e-30, 1e30, float("nan")]),
)
def test_an_audit_gives_a_verdict_that_can_be_written_or_a_sentence(
    given_targets: Any, metric: Any, threshold: Any, samples: Any, scale: float
) -> None:
    x = ring()[:8] * scale
    held: Any = {"labels": (x, (x[:, 0] > 0).long()), "numbers": (x, 2 * x)}
    data = held.get(given_targets, x) if isinstance(given_targets, str | None) else (x, given_targets)
    options = {"metric": metric, "threshold": threshold, "samples": samples}
    with torch.no_grad():
        verdict = outcome(lambda: wm.audit(block(3), data, evidence=False, **options))
    if not isinstance(verdict, WindermereError):
        written = json.dumps(verdict.to_dict(), allow_nan=False)
        assert wm.Verdict.from_dict(json.loads(written)).to_dict() == verdict.to_dict()
