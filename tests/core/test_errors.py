"""An error begins with the fact."""

from __future__ import annotations

import pytest

from probing_cluster.core import errors

CLASSES = [errors.ProbingError, *errors.ProbingError.__subclasses__()]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_the_text_is_the_whole_message(kind: type[errors.ProbingError]) -> None:
    """No class speaks before it; only an error without a text says what its class means."""
    assert str(kind("job 7 is not known")) == "job 7 is not known"
    assert str(kind()) == (kind.__doc__ or "").splitlines()[0].rstrip(".")
