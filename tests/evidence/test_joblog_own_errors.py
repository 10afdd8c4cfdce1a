"""Every form of a line that calls itself an error: its example, its triggers, and the same answer on both ways of reading."""

from __future__ import annotations

import re
from typing import Any

import pytest

from probing_cluster.evidence import classify
from probing_cluster.evidence.joblog import error_line, reader
from probing_cluster.evidence.joblog.messages import own_errors

_DIGITS = str.maketrans("", "", "0123456789")
_ABOVE = [f"reading part {n} of the input" for n in range(30)]
_NAMES = {form.example: form for form in error_line.FORMS}


def _of_sieve(text: str) -> list[dict[str, Any]]:
    lines = [line.encode() for line in (*_ABOVE, text)]
    return list(classify.classify_stream(lines, "joblog"))


def _of_agent(text: str) -> list[dict[str, Any]]:
    return [classify.joblog_json(finding) for finding in reader.read([*_ABOVE, text])]


@pytest.mark.parametrize("form", error_line.FORMS, ids=lambda form: form.example)
def test_the_example_of_a_form_has_its_pattern_and_one_of_its_triggers(form: own_errors.Form) -> None:
    assert re.match(form.pattern, form.example), "the example stands in plain sight to show the pattern"
    assert not re.compile(form.pattern).groups, "a group would be numbered through all forms"
    template = form.example.translate(_DIGITS)
    assert any(trigger in template for trigger in form.triggers), "the sieve would drop the line"


@pytest.mark.parametrize("form", error_line.FORMS, ids=lambda form: form.example)
def test_a_logs_last_line_of_a_form_has_one_answer_on_both_ways(form: own_errors.Form) -> None:
    """`classify` and the imports read only lines with a trigger; the agent reads all."""
    found = _of_sieve(form.example)
    assert found == _of_agent(form.example), "the two ways differ"
    assert [f["line"] for f in found if f["first_cause"]] == [len(_ABOVE) + 1], "the line is the cause"


def test_no_two_forms_have_the_same_example_or_pattern() -> None:
    assert len(_NAMES) == len(error_line.FORMS), "an example of two forms shows neither"
    assert len({form.pattern for form in error_line.FORMS}) == len(error_line.FORMS), "a form stands twice"
