"""What `probing-ctl COMMAND --help` prints."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from probing_cluster.control_plane.cli import commands, main
from tests.every_case import every


def _leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not below:
        yield parser
    for action in below:
        for inner in action.choices.values():
            yield from _leaves(inner)


EVERY = {parser.prog: parser for parser in _leaves(main.parser())}


@every("prog", sorted(EVERY))
def test_the_help_of_every_command_ends_with_the_exit_codes(prog: str) -> None:
    """The README sends people there for them."""
    assert EVERY[prog].format_help().rstrip().endswith(commands.EXIT_CODES)
