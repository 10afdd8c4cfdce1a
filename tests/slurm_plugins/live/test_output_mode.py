"""Append or truncate, from what was submitted."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from probing_cluster.core import errors
from probing_cluster.slurm_plugins.live import output_mode

SCRIPT = "#!/bin/bash\n#SBATCH -N 2\n\n{line}\n# words\npython train.py\n#SBATCH --open-mode=append\n"


@pytest.mark.parametrize(
    ("line", "script", "config", "appends"),
    [
        ("sbatch --open-mode=append a.sh", "", "", True),
        ("sbatch --open-mode append a.sh", "", "", True),
        ("sbatch a.sh", SCRIPT.format(line="#SBATCH --open-mode=append"), "", True),
        ("sbatch --open-mode=truncate a.sh", SCRIPT.format(line="#SBATCH --open-mode=append"), "", False),
        ("sbatch a.sh", SCRIPT.format(line=""), "", False),
        ("", "", "JobFileAppend           = 1\n", True),
        ("", "", "JobFileAppend           = 0\n", False),
        ("sbatch --open-mode=truncate a.sh", "", "JobFileAppend = 1\n", False),
        (None, None, None, False),
    ],
)
def test_where_the_mode_is_written(
    line: str | None, script: str | None, config: str | None, *, appends: bool
) -> None:
    """The command line goes before the script, which goes before the site; below its first command a script says nothing."""

    def run(program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
        del environment
        text = line if program == "sacct" else script if "batch_script" in arguments else config
        if text is None:
            raise errors.SlurmUnavailable("away")
        return text.encode()

    assert output_mode.appends(run, 7, "7") is appends
