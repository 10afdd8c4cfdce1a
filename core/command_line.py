"""What all six commands have in common: `--version`, and options before or after the subcommand."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from probing_cluster.core import errors

DISTRIBUTION = "probing-cluster"
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}")


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that takes a subcommand's options before its name, too, when asked by `read`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.options: dict[str, argparse.Action] = {}
        self.subcommands: argparse._SubParsersAction[Parser] | None = None
        self.runs_command = False
        super().__init__(*args, **kwargs)

    def add_argument(self, *names: Any, **kwargs: Any) -> argparse.Action:
        """Adds an argument as argparse does, and remembers its options."""
        action = super().add_argument(*names, **kwargs)
        self.options.update(dict.fromkeys(action.option_strings, action))
        self.runs_command = self.runs_command or action.nargs == argparse.REMAINDER
        return action

    def add_subparsers(self, **kwargs: Any) -> Any:
        """Adds subcommands as argparse does, and remembers them."""
        self.subcommands = super().add_subparsers(**kwargs)
        return self.subcommands

    def error(self, message: str) -> NoReturn:
        """Ends the command as argparse does; where a subcommand is missing, with where they are listed."""
        missing = self.subcommands is not None and "are required: " in message
        more = f"; {self.prog} --help lists its commands" if missing else ""
        super().error(f"{message}{more}")

    def read(self, argv: Sequence[str] | None = None) -> argparse.Namespace:
        """The arguments; `--config FILE nodes` is `nodes --config FILE`."""
        return self.parse_args(self.arranged(list(sys.argv[1:] if argv is None else argv)))

    def arranged(self, words: list[str]) -> list[str]:
        """`words` with the options that stand before a subcommand moved behind its name."""
        if self.subcommands is None:
            return self._positionals_first(words)
        front = self._front(words)
        rest = words[len(front) :]
        if not rest or rest[0] not in self.subcommands.choices:
            return words
        return [rest[0], *self.subcommands.choices[rest[0]].arranged([*front, *rest[1:]])]

    def _positionals_first(self, words: list[str]) -> list[str]:
        """`JOBID --format csv QUERY` as `JOBID QUERY --format csv`: argparse gives an optional QUERY up at the first option."""
        several = any(a.nargs is not None and a.nargs not in (0, "?") for a in self.options.values())
        # The words of a command that is run are its own: their order is part of what it means.
        if several or self.runs_command or "--" in words:
            return words
        left, positionals, options = list(words), [], []
        while left:
            word = left.pop(0)
            if not word.startswith("-") or word == "-":
                positionals.append(word)
                continue
            options.append(word)
            if "=" not in word and self.takes_value(word) and left:
                options.append(left.pop(0))
        return [*positionals, *options]

    def _front(self, words: list[str]) -> list[str]:
        """The options at the beginning that are none of this parser's own, each with its value."""
        front: list[str] = []
        while len(front) < len(words):
            word = words[len(front)]
            if not word.startswith("-") or word in {"-", "--"} or word in self.options:
                break
            front.append(word)
            if "=" not in word and self.takes_value(word):
                front += words[len(front) : len(front) + 1]
        return front

    def takes_value(self, word: str) -> bool:
        """Whether a subcommand has an option `word` (or one that it begins) with a value."""
        if self.subcommands is None:
            return any(
                action.nargs != 0
                for name, action in self.options.items()
                if name == word or (word.startswith("--") and name.startswith(word))
            )
        return any(parser.takes_value(word) for parser in self.subcommands.choices.values())


MOST_S = 86400.0


def seconds(text: str) -> float:
    """An argument's or a person's number of seconds, of a day at most; raises UsageError, for nan and inf, too."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= MOST_S:
        raise errors.UsageError(f"{text!r} is no number of seconds above 0 and at most {MOST_S:,.0f}")
    return found


def whole(text: str) -> int:
    """An argument's whole number, of 64 bits as the database has them; raises UsageError."""
    # `int` also takes 8_4 and digits of other scripts: the first is how people name a task of an array.
    if not _WHOLE.fullmatch(text):
        raise errors.UsageError(f"{text[:40]!r} is no whole number")
    found = int(text)
    if not -(1 << 63) <= found < 1 << 63:
        raise errors.UsageError(f"{text[:40]!r} is too large for a number of a job, a rank or rows")
    return found


def is_replaceable(path: Path) -> bool:
    """Whether a file that a person named may be put in the place of what stands there: a regular file, or nothing.

    A link, a pipe or a device (`--html /dev/null`) is written into; root would replace it for everybody.
    """
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return True


def write_file(path: Path, text: str) -> None:
    """Writes the output file that a person named, whole or not at all where it is a regular one; raises UsageError."""
    fresh = path.parent / f".probing.{os.getpid()}"  # a longer name may be too long for the file system
    made = False
    try:
        if not is_replaceable(path):
            path.write_text(text, encoding="utf-8", errors="replace")
            return
        # "x": nobody else's file or link of that name is written through in a directory that all can write to.
        with fresh.open("x", encoding="utf-8", errors="replace") as stream:
            made = True
            stream.write(text)
        fresh.replace(path)
    except OSError as exc:
        if made:
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
        raise errors.UsageError(f"{path} cannot be written: {exc.strerror}") from exc


class _Version(argparse.Action):
    """Prints the installed version and ends; the metadata is read only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib import metadata

        try:
            version = metadata.version(DISTRIBUTION)
        except metadata.PackageNotFoundError:
            version = "of a source tree that is not installed"
        print(f"{parser.prog} {version}")  # noqa: T201
        parser.exit()


def add_version(parser: argparse.ArgumentParser) -> None:
    """Gives the command `--version`."""
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
