"""What `rich` wraps into a column is one logged line again, and nothing else changes."""

from __future__ import annotations

from probing_cluster.evidence import wrapped_columns
from probing_cluster.evidence.joblog import reader
from tests.every_case import every

WIDTH = 38
FULL = "CUDA out of memory. Tried to allocate 3.50 GiB. GPU 1 has a total capacity of 23.69 GiB of which 1.10 GiB is free."
TIME = "[05/03/24 11:22:33] "
PLACE = "worker.py:88"


def printed(messages: list[str], *, time: str = TIME) -> list[str]:
    """The lines that `rich` prints of these messages, of one level."""
    rows: list[str] = []
    for number, message in enumerate(messages):
        before = f"{time if number == 0 else ' ' * len(time)}ERROR    "
        for text in message.split("\n"):
            row = ""
            for word in text.split(" ") if not text.startswith(" ") else [text]:
                if row and len(row) + 1 + len(word) > WIDTH:
                    rows.append(f"{before}{row:<{WIDTH}} {PLACE if before.strip() else ''}".rstrip())
                    row, before = word, " " * len(before)
                else:
                    row = f"{row} {word}" if row else word
            rows.append(f"{before}{row:<{WIDTH}} {PLACE if before.strip() else ''}".rstrip())
            before = " " * len(before)
    return rows


def joined(lines: list[str]) -> list[tuple[int, str]]:
    columns = wrapped_columns.Columns()
    found = [given for number, text in enumerate(lines, 1) for given in columns.read(number, text)]
    return [*found, *columns.rest()]


@every("time", [TIME, "", "11:22:33 "])
def test_a_message_is_one_line_again(time: str) -> None:
    lines = printed([FULL, "it stops"], time=time)
    assert len(lines) == 5
    first, second = joined(lines)
    assert first == (1, f"{time}ERROR    {FULL}")
    assert second[0] == 5
    assert second[1] == lines[4]


def test_a_traceback_in_the_column_is_read() -> None:
    message = f'a step failed\nTraceback (most recent call last):\n  File "a.py", line 3, in f\n    go()\nRuntimeError: {FULL}'
    lines = ["loading", *printed([message]), "done"]
    cause = [(f.kind, f.line) for f in reader.read(lines) if f.first_cause]
    assert cause == [("cuda_oom", 6)]


def test_a_word_longer_than_the_column_is_whole_again() -> None:
    head = f"{TIME}ERROR    {'see the page':<{WIDTH}} {PLACE}"
    margin = " " * (len(TIME) + 9)
    word = f"https://example.org/{'x' * 18}"
    assert len(word) == WIDTH
    assert joined([head, margin + word, f"{margin}/more and more"]) == [
        (1, f"{TIME}ERROR    see the page {word}/more and more")
    ]


@every(
    "lines",
    [
        [f"{TIME}ERROR    {'short':<{WIDTH}} {PLACE}", f"{TIME}INFO     goes on"],
        [f"{TIME}ERROR    {'short':<{WIDTH}} {PLACE}", " " * 29 + "its own line", "x"],
        ["ERROR    in a table   a.py:3", "         and the next column is far too wide for it"],
        ["ERROR a.py:3", "      text"],
        ["  File \"a.py\", line 3", "    go()"],
    ],
)  # fmt: skip
def test_what_nobody_wrapped_stays(lines: list[str]) -> None:
    assert [text.strip() for _, text in joined(lines)] == [text.strip() for text in lines]
    assert [number for number, _ in joined(lines)] == list(range(1, len(lines) + 1))
