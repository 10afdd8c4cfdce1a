"""The sieve drops only lines no family could want, and batches keep lines whole."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.evidence import blocks
from probing_cluster.evidence.joblog import families
from probing_cluster.evidence.kernel import reader as kernel

WORDS = st.sampled_from(
    [*kernel.TRIGGERS, "n1", "kernel:", "[  12.3]", "0000:3b:00.0", "error", "device", " ", "\t", "7", "ab1c"]
)


@pytest.mark.parametrize("triggers", [kernel.TRIGGERS, families.TRIGGERS])
def test_every_line_with_a_trigger_passes(triggers: tuple[str, ...]) -> None:
    """Whatever was seen before, a line that contains a trigger is a hit."""
    sieve = blocks.TriggerSieve(triggers)
    for trigger in triggers:
        around = [
            f"x{trigger}y".encode(),
            f"a 1 {trigger} 2 b".encode(),
            trigger.encode(),
            b"nothing here 12",
        ]
        for _ in range(2):
            assert sieve.hits(around)[:3] == [0, 1, 2]


@given(st.lists(st.lists(WORDS, max_size=8).map("".join), max_size=8))
def test_the_sieve_never_drops_what_a_family_could_want(lines: list[str]) -> None:
    """The hits include every line with a trigger in it, in any mixture and order."""
    sieve = blocks.TriggerSieve(kernel.TRIGGERS)
    raw = [line.encode() for line in lines]
    must = {i for i, line in enumerate(lines) if any(t in line for t in kernel.TRIGGERS)}
    for _ in range(2):
        assert must <= set(sieve.hits(raw))


def test_a_trigger_with_a_digit_is_refused() -> None:
    """Digits are taken out of templates, so a trigger must not need one."""
    with pytest.raises(ValueError, match="digit"):
        blocks.TriggerSieve(("mlx5",))


def test_what_it_remembers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of ever new words does not fill the memory."""
    monkeypatch.setattr(blocks, "_MAX_TEMPLATES", 50)
    sieve = blocks.TriggerSieve(("NVRM",))
    for number in range(300):
        word = "".join(chr(97 + int(d)) for d in str(number))
        assert sieve.hits([f"line of {word}".encode()]) == []
    assert len(sieve._lines_without_trigger) <= 52
    assert len(sieve._words_without_trigger) <= 55


@given(st.binary(max_size=200))
def test_batches_are_the_lines_of_the_file(data: bytes) -> None:
    """An open file and its lines give the same lines, with or without a last newline."""
    whole = [line for batch in blocks.batches(io.BytesIO(data)) for line in batch]
    assert whole == (data[:-1] if data.endswith(b"\n") else data).split(b"\n")[: len(whole)]
    assert sum(map(len, whole)) + len(whole) >= len(data)
    one_by_one = [line for batch in blocks.batches(iter(data.splitlines(keepends=True))) for line in batch]
    assert b"".join(one_by_one).replace(b"\r", b"") == b"".join(whole).replace(b"\r", b"")


def test_a_line_that_holds_a_lines_end_moves_no_other() -> None:
    sieve = blocks.TriggerSieve(["fell off"])
    assert sieve.hits([b"\n\x00", b"it fell off", b"a\nit fell off"]) == [1, 2]
