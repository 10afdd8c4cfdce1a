"""The sentences on why a node has its score, strongest first."""

from __future__ import annotations

from collections import Counter
from typing import Any

from probing_cluster.core import sanitize
from probing_cluster.lemon import signals


def of(node: signals.LemonNode, model_signals: dict[str, Any]) -> tuple[str, ...]:
    """Sentences about one node; `model_signals`: the model's part of its signals (nightly.py)."""
    sentences = [
        _failures(node, model_signals),
        _part(node),
        *_cards(node),
        _again(node),
        _shared(model_signals),
        *_minor(node, model_signals),
        _xids(node),
        _service(node),
        _reported_by_jobs(node),
    ]
    return tuple(sanitize.clean(t, 300) for t in sentences if t)


def _failures(node: signals.LemonNode, model_signals: dict[str, Any]) -> str:
    counted = [f for f in node.failures if f.counts]
    if not counted:
        return ""
    causes = ", ".join(f"{cause} {n}×" for cause, n in Counter(f.cause for f in counted).most_common(3))
    usual = f"; a node of this fleet with its load usually has {_number(model_signals['usual'])}"
    spread = f"on {model_signals['fail_days']} days" if model_signals["fail_days"] > 1 else "on one day"
    return f"{_count(len(counted), 'attempt')} failed because of it {spread} ({causes}){usual}."


def _part(node: signals.LemonNode) -> str:
    parts = Counter((f.cause, f.device) for f in node.failures if f.counts and f.device)
    (cause, device), n = parts.most_common(1)[0] if parts else (("", ""), 0)
    return f"{n} of them were the same part again: {device} ({cause})." if n > 1 else ""


def _cards(node: signals.LemonNode) -> list[str]:
    return [
        (
            f"The card {c.gpu_uuid} showed faults in {c.other} before ({_count(c.n_there, 'event')}) and shows them "
            f"here now ({c.n_here}): the lemon may be the card, not the node."
            if c.moved_here
            else f"The card {c.gpu_uuid} showed faults here ({_count(c.n_here, 'event')}) and now shows them in {c.other} "
            f"({c.n_there}): the lemon may have left with the card."
        )
        for c in node.cards
    ]


def _again(node: signals.LemonNode) -> str:
    n = node.recurrences
    return f"It failed again after {_count(n, 'repair')}." if n else ""


def _shared(model_signals: dict[str, Any]) -> str:
    shared = model_signals["shared"]
    if shared < 0.5:
        return ""
    return f"It most likely caused about {shared:.1f} of the failures without a named node, since it took part in them."


def _minor(node: signals.LemonNode, model_signals: dict[str, Any]) -> list[str]:
    found = []
    for sign, words in signals.SIGN_WORDS.items():
        n = getattr(node, f"minor_{sign}")
        if n >= 3:
            found.append(f"{n} {words}{'' if sign in model_signals['unusual'] else ' (not unusual here)'}.")
    return found


def _xids(node: signals.LemonNode) -> str:
    if not node.xids:
        return ""
    codes = ", ".join(
        f"{code} ({n}×)" for code, n in sorted(node.xids.items(), key=lambda x: (-x[1], x[0]))[:5]
    )
    return f"Xid {codes} in its kernel log."


def _service(node: signals.LemonNode) -> str:
    parts = [f"out of service {_count(node.out_count, 'time')}"] if node.out_count else []
    parts += [_count(node.tickets, "ticket")] if node.tickets else []
    parts += (
        [f"excluded by the users of {_count(node.excl_jobid_count, 'job')}"] if node.excl_jobid_count else []
    )
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _reported_by_jobs(node: signals.LemonNode) -> str:
    if not node.rank_findings:
        return ""
    return f"Jobs reported slow or stuck ranks on it {_count(node.rank_findings, 'time')} (not part of the score)."


def _number(value: float) -> str:
    return f"{value:.1f}" if value >= 0.1 else "fewer than 0.1"


def _count(n: int, word: str) -> str:
    return f"{n} {word}" if n == 1 else f"{n} {word}s"
