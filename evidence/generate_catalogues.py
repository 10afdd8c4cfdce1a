"""Makes the catalogues in `core/catalogue/*.tsv` from the facts tables; raises on a line it does not understand.

    python -m probing_cluster.evidence.generate_catalogues FACTS_DIRECTORY [--check]

The facts give numbers, vendor mnemonics and vendor actions; the sentences and the severities are ours
(`catalogue_words.py`). Every word that comes in must be known here, so that a new vendor table cannot slip
in half understood.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from probing_cluster.core import digits
from probing_cluster.core.errors import MalformedInput
from probing_cluster.evidence import catalogue_words as words

Row = Mapping[str, str]
TARGET = Path(__file__).resolve().parent.parent / "core" / "catalogue"
DOMAINS = frozenset({"user_program", "system_software", "hardware"})
_MASK = re.compile(r"[01-]{32}")
_STATUS = re.compile(r"(0x[0-9A-F]{8}(/0x[0-9A-F]{8})?)?")


def _rows(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8", newline="") as stream:
        yield from csv.DictReader(stream)


def _known(value: str, table: Mapping[str, str], what: str) -> str:
    if value not in table:
        msg = f"{what}: {value!r} is not a word this generator knows"
        raise MalformedInput(msg)
    return table[value]


def _domains(text: str, what: str) -> str:
    parts = text.split("|")
    if not parts or set(parts) - DOMAINS:
        msg = f"{what}: domains {text!r}"
        raise MalformedInput(msg)
    return "|".join(parts)


def _source(text: str, what: str) -> tuple[str, str]:
    """The source in short and its date, from the long form of the facts."""
    if found := re.search(r"Xid-Catalog\.xlsx \((\d{4}-\d{2})", text):
        return "NVIDIA Xid-Catalog.xlsx", found[1]
    if found := re.search(r"open-gpu-kernel-modules (?:nverror\.h )?([\d.]+)", text):
        return f"open-gpu-kernel-modules {found[1]}", words.DRIVER_DATES[found[1]]
    msg = f"{what}: source {text!r}"
    raise MalformedInput(msg)


def _code(text: str, what: str) -> int:
    if not digits.is_number(text):
        msg = f"{what}: code {text!r} is not a number"
        raise MalformedInput(msg)
    return int(text)


def xid_lines(path: Path) -> Iterator[tuple[str, ...]]:
    """code, name, meaning, domains, severity, next_step, source, date of every Xid in `path`."""
    for row in _rows(path):
        code = _code(row["xid"], "xid")
        what = f"xid {code}"
        domains = _domains(row["likely_domains"], what)
        name = row["mnemonic"].split(" / ")[0].removeprefix("ROBUST_CHANNEL_")
        if not re.fullmatch(r"[A-Z0-9_]+", name):
            msg = f"{what}: mnemonic {name!r}"
            raise MalformedInput(msg)
        action = row["immediate_action"] or row["investigatory_action"]
        step = words.XID_STEPS.get(code) or _known(action, words.STEPS, what)
        meaning = words.XID_MEANINGS.get(code) or words.sentence(row["description"])
        severity = words.xid_severity(code, domains, row["immediate_action"])
        yield (str(code), name, meaning, domains, severity, step, *_source(row["source"], what))


def sxid_lines(path: Path) -> Iterator[tuple[str, ...]]:
    """The same columns for every NVSwitch SXid in `path`."""
    for row in _rows(path):
        code = _code(row["sxid"], "sxid")
        what = f"sxid {code}"
        severity = words.sxid_severity(row["driver_severity_by_arch"], row["fabric_manager_doc_class"], what)
        unit = row["unit"].strip()
        message = (
            re.sub(r"^(Non-)?[Ff]atal, ", "", row["driver_message"])
            .split(" | ")[0]
            .split("%")[0]
            .strip(" ,:(-")
            or row["mnemonic"].replace("_", " ").lower()
        )
        meaning = words.sentence(f"NVSwitch {unit}: {message}" if message else f"NVSwitch {unit} error")
        step = _known(row["nvsentinel_action"], words.STEPS, what)
        domains = _domains(row["likely_domain"], what)
        yield (
            str(code),
            row["mnemonic"] or "UNNAMED",
            meaning,
            domains,
            severity,
            step,
            *_source(row["source"], what),
        )


def nvlink5_lines(path: Path) -> Iterator[tuple[str, ...]]:
    """xid, units, masks of the info word (driver before R575, from R575), status, severity, domains, step, source, date."""
    for row in _rows(path):
        code = _code(row["xid"], "nvlink5")
        what = f"nvlink5 {code} {row['subcode_v1/v2']}"
        status = row["error_status"].strip()
        masks = [row["intrinfo_mask_v1_lt_R575"], row["intrinfo_mask_v2_ge_R575"]]
        harder = [row["decode_action2_v1"], row["decode_action2_v2"]]
        if not all(_MASK.fullmatch(m) for m in masks) or not all(
            m == "" or _MASK.fullmatch(m) for m in harder
        ):
            msg = f"{what}: masks {masks + harder}"
            raise MalformedInput(msg)
        if not _STATUS.fullmatch(status):
            msg = f"{what}: error status {status!r}"
            raise MalformedInput(msg)
        severity = _known(row["severity"].rstrip("*?"), words.NVLINK5_SEVERITY, what)
        domains = _known(row["hw_sw"], words.NVLINK5_DOMAINS, what)
        follow = _known(row["investigatory_action"], words.STEPS, what)
        step = " ".join(dict.fromkeys((_known(row["immediate_action"], words.STEPS, what), follow)))
        yield (
            str(code),
            row["subcode_v1/v2"].replace(" ", "_"),
            *masks,
            *harder,
            status,
            severity,
            domains,
            step,
            *words.NVLINK5_SOURCE,
        )


TABLES = (
    ("xid_catalog.csv", "xid.tsv", xid_lines, "code name meaning domains severity next_step source date"),
    ("sxid_catalog.csv", "sxid.tsv", sxid_lines, "code name meaning domains severity next_step source date"),
    (
        "xid_nvlink5_decode.csv",
        "nvlink5.tsv",
        nvlink5_lines,
        "xid units mask_v1 mask_v2 reset_mask_v1 reset_mask_v2 status severity domains next_step source date",
    ),
)


def render(facts: Path) -> dict[str, str]:
    """The text of every catalogue file made from the tables in `facts`."""
    texts = {}
    for source, target, lines, columns in TABLES:
        head = (
            f"# Generated by evidence/generate_catalogues.py from {source}; do not edit.\n"
            + columns.replace(" ", "\t")
        )
        body = []
        for fields in lines(facts / source):
            if any("\t" in f or "\n" in f for f in fields):
                msg = f"{target}: a tab or newline in {fields}"
                raise MalformedInput(msg)
            body.append("\t".join(fields))
        texts[target] = head + "\n" + "\n".join(body) + "\n"
    return texts


def main(arguments: list[str]) -> int:
    """Write the files, or with --check say (exit 1) when they differ from what the facts give."""
    facts, stale = Path(arguments[0]), []
    for name, text in render(facts).items():
        path = TARGET / name
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text:
            stale.append(name)
    if stale:
        sys.stderr.write(f"stale: {', '.join(stale)}\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
