"""One test that looks at many texts and names every wrong one: an item of pytest for each costs more than reading it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any


def every(
    names: str | tuple[str, ...], cases: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """As `pytest.mark.parametrize` for a test that takes these arguments and no fixture, in one item. All cases are tried."""
    keys = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else names
    tried = [tuple(case) if len(keys) > 1 else (case,) for case in cases]
    assert tried, "no case proves nothing"

    def decorate(test: Callable[..., None]) -> Callable[[], None]:
        def run() -> None:
            wrong = []
            for values in tried:
                try:
                    test(**dict(zip(keys, values, strict=True)))
                except Exception as exc:  # noqa: BLE001  # named below, with all others
                    wrong.append(f"{', '.join(map(repr, values))}: {type(exc).__name__}: {exc}")
            assert not wrong, f"{len(wrong)} of {len(tried)} cases:\n" + "\n".join(wrong)

        functools.update_wrapper(run, test)
        del run.__wrapped__  # type: ignore[attr-defined] # pytest would ask it for its arguments
        return run

    return decorate
