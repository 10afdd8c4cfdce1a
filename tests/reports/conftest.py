"""Makes the story of `conftest_story.py` a fixture."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import conftest_story

from probing_cluster.reports import rows


@pytest.fixture
def story() -> rows.ReportRows:
    """The rows of the README's job 4242."""
    return conftest_story.story()
