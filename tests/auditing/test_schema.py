"""A verdict as JSON, and back."""

import json
from typing import Any

import pytest

import windermere as wm
from tests.auditing.test_known_cases import ring, rotation_verdict
from tests.auditing.test_metrics import regression
from tests.auditing.test_unlabelled import block
from windermere.auditing import Verdict
from windermere.errors import UsageError

VERDICTS: dict[str, Any] = {
    "classes": lambda: rotation_verdict(2),
    "undecided": lambda: rotation_verdict(4, samples=1, metric=lambda outputs, _: outputs[:, 0], threshold=0.1),
    "errors": lambda: regression(tied=True, metric="mse"),
    "movement": lambda: wm.audit(block(4), ring()),
}


@pytest.mark.parametrize("kind", list(VERDICTS))
def test_a_verdict_comes_back_from_json_as_it_was(kind: str) -> None:
    verdict: Verdict = VERDICTS[kind]()
    written = json.loads(json.dumps(verdict.to_dict(), allow_nan=False))
    again = Verdict.from_dict(written)
    assert written["version"] == 1
    assert again.to_dict() == verdict.to_dict()
    assert str(again) == str(verdict)
    assert (again.outcome, again.gap, again.table, again.safe) == (
        verdict.outcome,
        verdict.gap,
        verdict.table,
        verdict.safe,
    )


def test_a_field_of_a_later_writer_is_passed_over_and_another_version_refused() -> None:
    values = rotation_verdict(2, evidence=False).to_dict()
    assert Verdict.from_dict({**values, "weather": "fine"}).to_dict() == values
    wrong: list[tuple[Any, str]] = [
        ({**values, "version": 2}, "written in version 2 of the schema, and version 1 is read here"),
        ({}, "read from what its to_dict"),
        ([], "read from what its to_dict"),
        ({**values, "outcome": "PERHAPS"}, "no verdict that to_dict.. wrote"),
        ({"version": 1}, "no verdict that to_dict.. wrote"),
        ({**values, "own": None}, "KeyError, 'own'"),
        ({**values, "sentence": None}, "KeyError, 'sentence'"),
        ({**values, "threshold": "0.1"}, "threshold is '0.1'"),
        ({**values, "notes": [3]}, "notes is 3"),
    ]
    for given, words in wrong:
        with pytest.raises(UsageError, match=words):
            Verdict.from_dict(given)
