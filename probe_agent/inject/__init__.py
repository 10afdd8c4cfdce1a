"""What rides inside job steps, on the user's own Python (3.8 to 3.14).

`site/` is the one root-owned directory that SPANK or TaskProlog puts in front of `PYTHONPATH`. It holds
exactly `sitecustomize.py` and one uniquely named package, `_probing_probe`.
"""

from __future__ import annotations

from pathlib import Path

SITE_DIRECTORY = Path(__file__).resolve().parent / "site"
"""The directory to prepend to PYTHONPATH."""
