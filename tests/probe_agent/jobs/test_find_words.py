"""An alarm word is told where a line says it, and not where it is only mentioned."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies as st

from probing_cluster.probe_agent.jobs import find_words

WORDS = ("CUDA error", "loss is nan", "NCCL WARN")


@pytest.mark.parametrize(
    "line",
    [
        "CUDA error: an illegal memory access was encountered",
        "rank 3: cuda  ERROR",
        "[rank0] \x1b[31mCUDA error\x1b[0m in step 7",
        "n3:812:9 [2] NCCL WARN Call to connect failed",
        "step 120: Loss is NaN, skipping batch",
        "it's bad: loss is nan. don't go on",
        '{"level": "error"} loss is nan',
    ],
)
def test_what_a_program_says(line: str) -> None:
    """In any case, coloured, in the middle of a line, beside quotes and apostrophes that hold something else."""
    found = find_words.matches(f"epoch 1\n{line}\nepoch 2\n", WORDS)
    assert len(found) == 1
    assert "\x1b" not in next(iter(found.values()))


@pytest.mark.parametrize(
    "line",
    [
        'will retry on "CUDA error" three times',
        "retry_on='CUDA error'",
        "`NCCL WARN` lines go to stderr",
        '{"on": "loss is nan", "do": "skip"}',
        "--cuda-error=abort --on-loss-is-nan",
        "CUDA error_count 0",
        "loss is nan = skip",
        "loss is nano seconds",
        "tests/CUDA error/log.txt",
        "+ echo CUDA error",
        "# CUDA error is handled below",
        "    12 | raise RuntimeError(CUDA error)",
        "NVIDIA CUDA errors: 0",
    ],
)
def test_what_is_only_mentioned(line: str) -> None:
    """Quoted, part of a name, an option, a path or a setting, echoed by a shell, a comment, a listing."""
    assert find_words.matches(f"{line}\n", WORDS) == {}


def test_each_word_once_with_its_first_line() -> None:
    """However often it is said; a long line is cut."""
    text = "first CUDA error\nsecond CUDA error\n" + "x" * 500 + " NCCL WARN\n"
    found = find_words.matches(text, WORDS)
    assert found["CUDA error"] == "first CUDA error"
    assert len(found["NCCL WARN"]) == find_words.MAX_LINE_CHARS


def test_words_that_can_be_looked_for() -> None:
    """Blank ones, letters and essays are no words; so many and no more."""
    given = ("", "  ", "ab", " NaN ", "NaN", "x" * 81, *(f"word {n}" for n in range(50)))
    words = find_words.usable(given)
    assert words[:2] == ("NaN", "word 0")
    assert len(words) == find_words.MAX_WORDS


@hypothesis.given(st.text(max_size=400), st.lists(st.text(max_size=20), max_size=5))
def test_no_text_and_no_word_breaks_it(text: str, words: list[str]) -> None:
    """Whatever a user writes and a site sets: an answer, whose words are the site's and whose lines are short."""
    wanted = find_words.usable(words)
    found = find_words.matches(text, wanted)
    assert set(found) <= set(wanted)
    assert all(len(line) <= find_words.MAX_LINE_CHARS for line in found.values())
