"""A secret that others can read is not used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from probing_cluster.core import errors, secret_file


def _made(directory: Path, mode: int, text: str = "hunter2\nmore\n") -> Path:
    path = directory / "secret"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_private_file_gives_its_first_line(tmp_path: Path) -> None:
    """The line end is none of the secret's; later lines are not read."""
    path = _made(tmp_path, 0o600)
    assert secret_file.read(path) == "hunter2"
    secret_file.require_private(path)


@pytest.mark.parametrize("mode", [0o644, 0o606, 0o604, 0o660, 0o602])
def test_what_others_can_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    """The error says the mode and the cure; neither reader accepts it."""
    path = _made(tmp_path, mode)
    for use in (secret_file.read, secret_file.require_private):
        with pytest.raises(errors.SettingsError, match=f"mode {mode:04o}; 0600 is needed"):
            use(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_only_roots_and_our_own_files_count(tmp_path: Path) -> None:
    """A file of another account is not ours to trust; root's may be readable by a group, another's may not."""
    path = _made(tmp_path, 0o600)
    os.chown(path, 65534, 65534)
    with pytest.raises(errors.SettingsError, match="belongs to uid 65534"):
        secret_file.read(path)
    os.chown(path, 0, 65534)
    path.chmod(0o640)
    assert secret_file.read(path) == "hunter2"


def test_nothing_there_and_nothing_in_it(tmp_path: Path) -> None:
    """A missing file, an empty one, a directory and an endless line are named."""
    with pytest.raises(errors.SettingsError, match="cannot be read"):
        secret_file.read(tmp_path / "none")
    with pytest.raises(errors.SettingsError):
        secret_file.require_private(tmp_path)
    with pytest.raises(errors.SettingsError, match="1 to 4096"):
        secret_file.read(_made(tmp_path, 0o600, "\n"))
    with pytest.raises(errors.SettingsError, match="1 to 4096"):
        secret_file.read(_made(tmp_path, 0o600, "x" * 5000))
