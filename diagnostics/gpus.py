"""GPUs as tests see them, and the CPU through torch where there is none: what `torch_parts.py` answers, run by the site's Python with torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from probing_cluster.diagnostics import machine
from probing_cluster.healthchecks import findings

_SCRIPT = Path(__file__).with_name("torch_parts.py")


def ask(
    node: machine.Machine, what: str, deadline_s: float, **given: Any
) -> tuple[str, list[dict[str, Any]]]:
    """torch's version and one answer per GPU, or one of its CPU where there is no GPU; raises Absent without torch, Undetermined for no answer."""
    python = node.options.torch_python
    if not python:
        raise findings.Absent("[diagnostics] torch_python names no Python with torch")
    request = {"what": what, "repeats": node.options.repeats, **given}
    code, output = node.run_tool([python, "-I", str(_SCRIPT), json.dumps(request)], deadline_s)
    if code != 0:
        lines = output.strip().splitlines() or ["no output"]
        raise findings.Undetermined(f"torch ended with {code}: {lines[-1][:200]}")
    try:
        answer = json.loads(output.strip().splitlines()[-1])
        return str(answer["torch"]), list(answer["parts"])
    except (ValueError, KeyError, IndexError, TypeError) as exc:
        raise findings.Undetermined(f"torch's answer is unreadable: {exc}") from exc


def judged(
    parts: Sequence[Mapping[str, Any]],
    version: str,
    figure: Callable[[Mapping[str, Any]], tuple[float, str, str]],
) -> list[findings.Finding]:
    """One finding per GPU; `figure` gives its measured value, the unit and a few words."""
    if not parts:
        raise findings.Absent("torch sees no GPU")
    made = []
    for part in parts:
        measured, unit, words = figure(part)
        more: dict[str, Any] = {
            "device": str(part["device"]),
            "detail": {"model": str(part["model"]), "engine": f"torch {version}"},
        }
        if part["wrong"]:
            broken = f", {part['broken']} of them NaN or infinite" if part["broken"] else ""
            made.append(findings.fail(f"{part['wrong']} wrong results{broken}", **more))
        else:
            made.append(findings.ok(words, measured=measured, unit=unit, **more))
    return made
