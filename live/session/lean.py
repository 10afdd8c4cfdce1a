"""Arrow and DataFusion in a third of the time: without NumPy and pandas, which they load where they find them and we need not.

For a process that does nothing but ask: 0.17 instead of 0.53 s of CPU (benchmarks/live/sql.py).
"""

from __future__ import annotations

import sys

HIDDEN = ("numpy", "pandas")


def load() -> None:
    """Loads both libraries; NumPy and pandas are hidden from this process for good, unless something has loaded them before."""
    hidden = [name for name in HIDDEN if name not in sys.modules]
    if hidden != list(HIDDEN):
        return  # pandas without NumPy, or Arrow with the one and not the other, is nothing that anybody tests
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        import datafusion  # noqa: F401
        import pyarrow.dataset  # noqa: F401
    except (ImportError, AttributeError):
        # Releases that need them: Arrow before 18.
        for name in hidden:
            del sys.modules[name]
        for name in [n for n in sys.modules if n.partition(".")[0] in ("datafusion", "pyarrow")]:
            del sys.modules[name]
