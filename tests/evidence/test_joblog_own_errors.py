"""Every form of a line that calls itself an error: its example, its triggers, and the same answer on both ways of reading."""

from __future__ import annotations

import random
import re
import re._constants as constants
import re._parser as parser
from collections.abc import Iterator
from typing import Any

from probing_cluster.evidence import classify
from probing_cluster.evidence.joblog import reader
from probing_cluster.evidence.joblog.last_errors import error_line, no_errors, own_errors
from tests.every_case import every
from tests.evidence import pattern_members

_DIGITS = str.maketrans("", "", "0123456789")
_ABOVE = [f"reading part {n} of the input" for n in range(30)]
_SAMPLES = 400
_AHEAD = "\x02"
"""Stands in front of what a pattern only looks ahead for."""
_NAMES = {form.example: form for form in error_line.FORMS}


def _of_sieve(text: str) -> list[dict[str, Any]]:
    lines = [line.encode() for line in (*_ABOVE, text)]
    return list(classify.classify_stream(lines, "joblog"))


def _of_agent(text: str) -> list[dict[str, Any]]:
    return [classify.joblog_json(finding) for finding in reader.read([*_ABOVE, text])]


@every("form", error_line.FORMS)
def test_the_example_of_a_form_has_its_pattern_and_one_of_its_triggers(form: own_errors.Form) -> None:
    assert re.match(form.pattern, form.example), "the example stands in plain sight to show the pattern"
    assert not re.compile(form.pattern).groups, "a group would be numbered through all forms"
    template = form.example.translate(_DIGITS)
    assert any(trigger in template for trigger in form.triggers), "the sieve would drop the line"


@every("form", error_line.FORMS)
def test_a_logs_last_line_of_a_form_has_one_answer_on_both_ways(form: own_errors.Form) -> None:
    """`classify` and the imports read only lines with a trigger; the agent reads all."""
    found = _of_sieve(form.example)
    assert found == _of_agent(form.example), "the two ways differ"
    assert [f["line"] for f in found if f["first_cause"]] == [len(_ABOVE) + 1], "the line is the cause"


def test_no_two_forms_have_the_same_example_or_pattern() -> None:
    assert len(_NAMES) == len(error_line.FORMS), "an example of two forms shows neither"
    assert len({form.pattern for form in error_line.FORMS}) == len(error_line.FORMS), "a form stands twice"


def _sample(tree: Any, dice: random.Random) -> str:
    """A text that a pattern's parse tree describes; words in any case come in the three that loggers use."""
    made: list[str] = []
    for kind, value in tree:
        if kind is constants.LITERAL:
            made.append(chr(value))
        elif kind is constants.ANY:
            made.append(dice.choice("a 1"))
        elif kind is constants.IN:
            made.append(pattern_members.member(value, dice))
        elif kind in (constants.MAX_REPEAT, constants.MIN_REPEAT):
            least, most, part = value
            made += [_sample(part, dice) for _ in range(dice.randint(least, min(int(most), least + 3)))]
        elif kind is constants.SUBPATTERN:
            text = _sample(value[3], dice)
            any_case = bool(value[1] & re.IGNORECASE)
            made.append(dice.choice((str.lower, str.upper, str.capitalize))(text) if any_case else text)
        elif kind is constants.BRANCH:
            made.append(_sample(dice.choice(value[1]), dice))
        elif kind is constants.ATOMIC_GROUP:
            made.append(_sample(value, dice))
        elif kind is constants.ASSERT:
            made.append(_AHEAD + _sample(value[1], dice))
    return "".join(made)


def _lines_of(form: own_errors.Form) -> Iterator[str]:
    """Lines of the form: what its pattern demands behind itself stands there, or anything does."""
    dice, tree, pattern = random.Random(7), parser.parse(form.pattern), re.compile(form.pattern)
    for _ in range(_SAMPLES):
        text = _sample(tree, dice).replace("\n", " ")
        ends = (
            text.replace(_AHEAD, ""),
            re.sub(rf"{_AHEAD}.*", "", text) + "x",
            text.replace(_AHEAD, "") + "xy zz",
        )
        yield from (line for line in ends if pattern.match(line))


@every("form", error_line.FORMS)
def test_every_line_of_a_form_has_one_of_its_triggers(form: own_errors.Form) -> None:
    lines = list(_lines_of(form))
    assert lines, "no line was made"
    without = [line for line in lines if not any(t in line.translate(_DIGITS) for t in form.triggers)]
    assert not without, f"the sieve would drop {len(without)} of {len(lines)} lines"


@every(
    "text",
    [
        "mytool: Error opening input x.dat",
        "h5dump: Error reading header of x",
        "HDF5-DIAG: Error detected in HDF5 (1.12.0) thread 0:",
        "Error> cannot continue",
        "(main) Error bad mesh of x",
        "[severe] no grid",
        "cannot start the solver",
        "Unable to stat x.dat",
        "main(): Error in the mesh",
        "Quit",
        "lz4: x.lz4: cannot be read",
    ],
)
def test_the_sieve_and_the_agent_give_one_answer(text: str) -> None:
    """The sieve dropped these lines, and the last resort left them to the reader of such lines."""
    found = _of_sieve(text)
    assert found == _of_agent(text)
    assert found, "the line calls itself an error"


@every("text", ["read 12: loss", "open 3: x", "NaN gradients in a row: detected 0"])
def test_a_line_with_an_ordinary_word_in_front_is_no_error(text: str) -> None:
    assert not _of_sieve(text)
    assert not _of_agent(text)


@every("form", no_errors.HARMLESS)
def test_a_harmless_form_is_no_cause(form: own_errors.Form) -> None:
    assert re.search(form.pattern, form.example, re.IGNORECASE), "the example shows the pattern"
    assert not re.compile(form.pattern).groups, "a group would be numbered through all forms"
    for found in (_of_sieve(form.example), _of_agent(form.example)):
        assert not [f for f in found if f["first_cause"]], "the line ends nothing"


@every("form", no_errors.HARMLESS)
def test_no_other_form_takes_the_example_of_a_harmless_one(form: own_errors.Form) -> None:
    others = [other.pattern for other in no_errors.HARMLESS if other is not form]
    assert not re.search("|".join(others), form.example, re.IGNORECASE), "another form takes the example"
