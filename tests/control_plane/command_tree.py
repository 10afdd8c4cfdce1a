"""Every command of a parser, with those below it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator


def commands(
    parser: argparse.ArgumentParser, above: str = ""
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, made in action.choices.items():
                inner = list(commands(made, f"{above}{name} "))
                yield from inner or [(f"{above}{name}", made)]
