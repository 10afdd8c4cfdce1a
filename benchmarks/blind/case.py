"""A stranger's case: one TOML file with its label, its place, and the text or its digest."""

from __future__ import annotations

import hashlib
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

HOME = Path(__file__).with_name("cases")
CLASSES = {
    "kernel": "a kernel line, or a few: which fault it reports, or that it is harmless",
    "joblog": "the log of a job that failed: its first cause",
    "healthy": "the log of a job that ended well: no cause at all",
    "quoted": "lines that quote an error: nobody's fault",
    "incident": "accounting, kernel logs and job logs together: the verdict on one job",
    "flight_recorder": "the dumps of a gang: the ranks at fault",
}
"""Every class and what is asked of it."""
_TABLES = {
    "source": frozenset({"url", "licence", "note"}),
    "label": frozenset({"by", "at", "why", "expected", "also", "first", "ranks", "job", "node", "domain", "most"}),
    "input": frozenset({"text", "sha256", "files", "reads", "sacct", "kernel", "joblog", "boot", "timezone", "delimiter"}),
}  # fmt: skip
_NEEDS = {
    "kernel": ("expected",),
    "joblog": ("first", "expected"),
    "healthy": (),
    "quoted": (),
    "incident": ("job", "expected"),
    "flight_recorder": ("ranks",),
}
"""What a label must say; of several, one is enough, but for an incident."""


class BadCase(ValueError):
    """A case file that cannot be scored; the message names the file and what is wrong."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case."""

    path: Path
    kind: str
    """A word of CLASSES."""
    source: Mapping[str, Any]
    label: Mapping[str, Any]
    given: Mapping[str, Any]
    """The file's `[input]`."""
    committed: bool
    """True when the file, label and all, is committed as it is: nobody changed the label after a run."""

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.path.stem}"

    def text(self, part: str | None = None) -> str | None:
        """The text itself, or a part's; None where only its digest is here.

        A digest stands for `texts/<sha256>` beside the cases; raises BadCase when that file has another one.
        """
        given = self.given if part is None else part_of(self.given, part)
        if "text" in given:
            return str(given["text"])
        digest = str(given["sha256"])
        for at in (self.path.parent, *self.path.parents[1:3]):
            found = at / "texts" / digest
            if found.is_file():
                data = found.read_bytes()
                if hashlib.sha256(data).hexdigest() != digest:
                    raise BadCase(f"{found}: its SHA-256 is another one")
                return data.decode("utf-8", "replace")
        return None


def part_of(given: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    """`kernel/n2` of an incident's input as a table with text or sha256; a file's name may have slashes of its own."""
    found: Any = given
    for word in part.split("/", 1):
        found = found[word]
    return found if isinstance(found, Mapping) else {"text": found}


def read_all(directory: Path) -> Iterator[Case]:
    """Every case below a directory, by name; raises BadCase."""
    unsettled = _unsettled(directory)
    for path in sorted(directory.rglob("*.toml")):
        yield read(path, committed=unsettled is not None and path.resolve() not in unsettled)


def read(path: Path, *, committed: bool) -> Case:
    """The case of one file; raises BadCase."""
    try:
        raw = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise BadCase(f"{path}: {exc}") from exc
    kind = raw.get("class")
    if kind not in CLASSES:
        raise BadCase(f"{path}: class is {kind!r}; give one of {', '.join(CLASSES)}")
    for table, keys in _TABLES.items():
        given = raw.get(table)
        if not isinstance(given, dict):
            raise BadCase(f"{path}: the table [{table}] is missing")
        if wrong := sorted(given.keys() - keys):
            raise BadCase(
                f"{path}: [{table}] does not know {', '.join(wrong)}; it knows {', '.join(sorted(keys))}"
            )
    label, source, given = raw["label"], raw["source"], raw["input"]
    missing = [k for k in ("by", "at", "why") if not label.get(k)]
    missing += [] if source.get("url") and source.get("licence") else ["source.url and source.licence"]
    wanted = _NEEDS[kind]
    named = [k for k in wanted if k in label]
    missing += (
        [" or ".join(wanted)] if (wanted and not named) or (kind == "incident" and len(named) < 2) else []
    )
    missing += [] if kind in ("incident", "flight_recorder") or {"text", "sha256"} & given.keys() else ["input.text or input.sha256"]  # fmt: skip
    if kind == "joblog" and "also" in label and "expected" not in label:
        raise BadCase(f"{path}: label.also gives further answers beside label.expected, which is missing")
    if missing:
        raise BadCase(f"{path}: it does not say {', '.join(missing)}")
    if not isinstance(label["at"], date):
        raise BadCase(f"{path}: label.at is no date; write at = 2026-11-22")
    return Case(path=path, kind=kind, source=source, label=label, given=given, committed=committed)


def _unsettled(directory: Path) -> frozenset[Path] | None:
    """The files that differ from what is committed, or are not committed; None where there is no repository."""
    given = ["git", "-C", str(directory), "status", "--porcelain", "-z", "-uall", "--ignored", "--", "."]
    done = subprocess.run(given, capture_output=True, check=False)
    top = subprocess.run(["git", "-C", str(directory), "rev-parse", "--show-toplevel"], capture_output=True, check=False)  # fmt: skip
    if done.returncode or top.returncode:
        return None
    root = Path(top.stdout.decode().strip())
    names = (entry[3:] for entry in done.stdout.decode("utf-8", "replace").split("\0") if len(entry) > 3)
    return frozenset((root / name).resolve() for name in names)
