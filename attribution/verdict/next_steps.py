"""The next step of a verdict: what to do now."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from probing_cluster.attribution.verdict import (
    claims,
    evidence_view,
    findings,
    node_faults,
    onset,
    phrases,
    rank_claims,
    recovery,
    taxonomy,
    wording,
)
from probing_cluster.core import digits, hostlist, records, vocabulary

_Applies = Callable[[evidence_view.EvidenceView, claims.Claim], bool]
_VARIANTS: tuple[tuple[str, tuple[str, ...], _Applies], ...] = (
    ("refused", ("node_refused",), lambda view, _: view.state != "REQUEUED"),
    (
        "refused_by_name",
        ("node_refused",),
        lambda _, winner: any(
            e.detail.get(vocabulary.BOUND_BY) == vocabulary.BY_NODE_LIST for e in winner.evidence
        ),
    ),
    ("deadline", ("time_limit",), lambda view, _: view.state == "DEADLINE"),
    ("another_limit", ("time_limit",), lambda view, _: view.within_limit),
    ("orderly_restart", (), lambda _, winner: wording.is_ordered(winner)),
    ("requeued_unwatched", ("requeued_by_user",), lambda view, _: not view.fully_watched),
    ("limit_after_steps_in_turn", ("time_limit",), lambda view, _: _steps_took_turns(view)),
    ("limit_after_waiting_step", ("time_limit",), lambda view, _: _step_waited(view, held=True)),
    ("limit_after_unbegun_step", ("time_limit",), lambda view, _: _step_waited(view, held=False)),
    ("limit_after_hang", ("time_limit",), lambda view, _: view.stalled_at is not None),
    (
        "limit_after_error",
        ("time_limit",),
        lambda view, _: recovery.last_error(view) is not None,
    ),
    ("limit_at_question", ("time_limit",), lambda view, _: onset.asks(view.output_stall)),
    ("limit_beside_mount", ("time_limit",), lambda view, _: bool(node_faults.silent_mounts(view))),
    ("limit_after_silence", ("time_limit",), lambda view, _: view.output_stall is not None),
    ("cancelled_after_hang", ("user_cancelled",), lambda view, _: view.stalled_at is not None),
    (
        "stalled",
        ("time_limit", "user_cancelled"),
        lambda view, _: bool(view.stalls or node_faults.blocked_tasks(view)),
    ),
    ("cancelled_by_root", ("user_cancelled",), lambda view, _: view.cancelled_by_root and not _by_user(view)),
    ("cancelled_by_unknown", ("user_cancelled",), lambda view, _: not view.attempt.cancelled_by),
    ("progress_or_gpu_lost", ("user_cancelled",), lambda view, _: bool(view.log_stall or view.lost_gpus)),
    ("cancelled_by_other", ("user_cancelled",), lambda view, _: not _by_user(view)),
    ("lost_node_unknown", ("node_lost",), lambda _, winner: winner.node is None),
    ("output_not_opened", ("user_error",), lambda view, _: view.signal == vocabulary.OUTPUT_NOT_OPENED),
)
"""Special cases (`[variants]` of taxonomy.toml) with their causes (none: any) and conditions; the first that applies is taken."""


def _by_user(view: evidence_view.EvidenceView) -> bool:
    return view.attempt.cancelled_by == view.attempt.user


def _step_waited(view: evidence_view.EvidenceView, *, held: bool) -> bool:
    """Whether a step waited to begin until the end; `held`: for other steps of the job, or for another reason."""
    error = recovery.last_error(view)
    if error is None or not onset.is_waiting_step(error):
        return False
    return phrases.waited_for_steps(error.message) is held


def _steps_took_turns(view: evidence_view.EvidenceView) -> bool:
    """Whether a step waited for other steps until the end, and an earlier one that had waited began."""
    error = recovery.last_error(view)
    took_turns = error is not None and error.detail.get(vocabulary.STEPS_TOOK_TURNS) is True
    return took_turns and _step_waited(view, held=True)


def next_step(view: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> str:
    """What to do now, in sentences; of something missing also what the script could not set up before it; what it outlived, and what its own tasks may hold."""
    winner = ranking.winner
    step, (names, set_up) = _step(view, ranking), _not_set_up(view, winner)
    if set_up and _lacks_package(winner):
        step = f"Mend first what should have set up its environment above that line ({names}). {set_up}. If the package is missing then, too: {step[:1].lower()}{step[1:]}"
    elif set_up:
        step = f"{step} The script did not set up its environment before it ({names}): {set_up[:1].lower()}{set_up[1:]}."
    return f"{step}{_own_port(view, winner)}{_outlived(view, winner)}"


def _own_port(view: evidence_view.EvidenceView, winner: claims.Claim) -> str:
    """Asks whether the job's own tasks open one port, if several errors in its log are of the same; a rank that tried again did not."""
    first = next(iter(winner.evidence), None)
    if first is None or first.kind != "address_in_use":
        return ""
    found = [f.event for f in (*view.findings, *view.further_errors)]
    same = [e for e in found if e.kind == first.kind and e.message == first.message]
    ranks = {e.detail.get("rank") for e in same}
    if len(same) < _SEVERAL or (len(ranks) == 1 and None not in ranks):
        return ""
    port = _PORT.search(first.message)
    where = f"port {port[1]}" if port else "the same address"
    return f" See first whether its own tasks all open it: {len(same)} errors in its log are of {where}, as where every task has RANK=0 (srun gives each its own number in SLURM_PROCID)."


_SEVERAL = 2
_PORT = re.compile(r"\bport:? (\d{1,5})\b", re.IGNORECASE)


def _unless_shown(words: str, view: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> str:
    """The words, to be quoted in the next step; empty if the summary has them."""
    return words if words and words not in wording.summary(view, ranking) else ""


def _quoting(step: str, words: str, view: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> str:
    shown = _unless_shown(words, view, ranking)
    return f"{step} Its log says: {shown}." if shown else step


def _not_set_up(view: evidence_view.EvidenceView, winner: claims.Claim) -> tuple[str, str]:
    """The complaints of what should have set up the environment of a script that then lacked a package, a file or another command, and what to do about the first; empty for none or another error."""
    if winner.cause != "user_error":
        return "", ""
    missing = [str(e.detail[_LACKED]) for e in winner.evidence if e.detail.get(_LACKED)]
    if _lacks_package(winner) or any(_MISSING.search(e.message) for e in winner.evidence):
        found = [f.event for f in (*view.findings, *view.further_errors) if f.event not in winner.evidence]
        found.sort(key=lambda e: digits.index(e.detail.get("line")) or 0)
        missing += [e.message for e in found if _is_no_set_up(e)]
    names = dict.fromkeys(": ".join(phrases.clean(m).rsplit(": ", 2)[-2:]) for m in missing)
    step = next(filter(None, map(findings.advice, missing)), "")
    return "; ".join(list(names)[:2]), step


def _lacks_package(winner: claims.Claim) -> bool:
    """Whether the program lacked a package of its language."""
    return any(e.kind == "import_error" or _NO_PACKAGE.search(e.message) for e in winner.evidence)


def _is_no_set_up(event: records.HealthEvent) -> bool:
    """Whether it is the complaint of a command or file that sets up an environment: it was not found, did not work, or cannot be used so."""
    flagged = event.detail.get("modules") is True or event.detail.get("not_set_up") is True
    return flagged or event.message.startswith(_NO_CONDA) or _NO_SOURCE.search(event.message) is not None


def _outlived(view: evidence_view.EvidenceView, winner: claims.Claim) -> str:
    """Names the command of the script that a signal ended before the script's work began; empty for none, or where the program is not at fault."""
    if winner.cause != "user_error":
        return ""
    ended = (e for e in view.case.events if findings.is_finding(e) and e.kind in _BY_SIGNAL)
    first = next((e.message for e in ended if e.detail.get("survived") is True), "")
    return (
        f" Earlier a signal ended a command of its script, which went on: {phrases.clean(first)}."
        if first
        else ""
    )


_BY_SIGNAL = frozenset({"oom_kill_suspected", "process_terminated"})
_LACKED = "lacked_before"
"""The field with the script's earlier complaint of what should have set up its environment."""
_MISSING = re.compile(r"No such file or directory|\[Errno 2\]|cannot open shared object|execve\(\): ")
"""Complaints of what the environment of a script may have brought, or the place of."""
_NO_PACKAGE = re.compile(r"there is no package called ['‘]")
_NO_SOURCE = re.compile(r": (?:source|module|ml|conda): (?:not found|Permission denied)$")
"""Complaints of a shell without that command; where PATH has a directory that it may not read, it says `Permission denied`."""
_NO_CONDA = ("CondaError: Run 'conda init' before 'conda activate'", "CommandNotFoundError: Your shell has not been properly configured")  # fmt: skip
"""Conda's complaints if its shell function was not set up; the script goes on in the environment that it has."""


def _step(view: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> str:
    """The claim's own step, else a variant, else a check that the findings suggest, else the cause's own step."""
    winner = ranking.winner
    if winner.next_step:
        return phrases.sentence(winner.next_step)
    for name, causes, applies in _VARIANTS:
        if (not causes or winner.cause in causes) and applies(view, winner):
            return _filled_in(taxonomy.load().variants[name], view, winner)
    if step := _check(view, ranking) or _advice(view, ranking):
        return step
    if winner.cause == taxonomy.UNKNOWN and any(f.event.source == "probe" for f in view.findings):
        return taxonomy.load().variants["unknown_with_probe"]
    proven = (
        ranking.confidence is not records.Confidence.POSSIBLE
        or winner.info.domain is not records.Domain.HARDWARE
    )
    # A verdict from the exit alone has no words of the program to quote.
    words = _of_its_log(winner) if winner.by_elimination else phrases.clean(winner.words) or "its log"
    text = phrases.next_step(
        winner.info.next_step if proven else phrases.before_a_repair(winner.info.next_step),
        part=winner.device,
        noun=winner.info.noun,
        node=winner.node,
        user=view.attempt.user or "the user",
        job=view.attempt.ref,
        detail=_unless_shown(words, view, ranking) if "{detail}" in winner.info.next_step else "",
    )
    serial = next((e.detail["serial"] for e in winner.evidence if e.detail.get("serial")), None)
    return f"{text.rstrip('.')} (serial {serial})." if serial else phrases.sentence(text)


def with_clocks(text: str, offsets_s: Mapping[str, float]) -> str:
    """The next step, with what to do about the clocks."""
    if not offsets_s:
        return text
    nodes = hostlist.compress(sorted(offsets_s))
    return f"{text} Set the clock of {nodes}: `chronyc tracking` there shows why it is off, `chronyc makestep` sets it."


def _filled_in(sentence: str, view: evidence_view.EvidenceView, winner: claims.Claim) -> str:
    by, stall = (
        view.attempt.cancelled_by or "",
        next(iter((*view.stalls, *node_faults.blocked_tasks(view))), None),
    )
    mount = next(iter(node_faults.silent_mounts(view)), None)
    return sentence.format(
        node=winner.node or "the node",
        job=view.attempt.ref,
        person=f"the user with id {by}" if digits.is_number(by) else by,
        mount=(mount.device or "a file system") if mount else "",
        of_mount=mount.node if mount else "",
        stall=f"{phrases.what(stall).replace('_', ' ')} on {stall.node}" if stall else "",
    )


def _of_its_log(winner: claims.Claim) -> str:
    """The log line that a verdict by elimination quotes; empty if none."""
    return phrases.clean(winner.words.partition("; its log says: ")[2])


_OUTPUT_FIRST = "Look at the program's own output first: a script may end with any code. If this one has its usual meaning, "
_BY_CODE = "exited with code "
"""Begins the words of a verdict from the exit code alone (`rules.user_error.bare_exit`)."""
_OWN_OUTPUT = "Look at the program's own output."
_ABOVE = f"{_OWN_OUTPUT[:-1]} above that line: what led to it often stands there; below it where a stack follows, as of Go, Java and C++. Correct that, then submit the job again."
_TRACEBACK = f"{_OWN_OUTPUT[:-1]} above that line: if a traceback stands there, the last line of your own code in it is the place, and the values that it had the reason. Correct that, then submit the job again."
_LAST_COMMAND = (
    f"{_OWN_OUTPUT} If it shows no error, look at the script's last command, which sets the exit code: "
    "`grep`, `diff`, `cmp` and `[ … ] && …` end with 1 when they find nothing. `set -x` in the script shows it."
)


def behind_statement(verdict: records.Verdict) -> str:
    """The next step of a verdict from the exit alone, where the program's own last words come first: they may give the reason."""
    step = verdict.next_step
    if step == _LAST_COMMAND:
        return _OWN_OUTPUT
    if verdict.cause != "rank_killed":
        return step
    return f"Look at the program's own output first: its last line may give the reason. Otherwise {step[:1].lower()}{step[1:]}"


def _advice(view: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> str:
    """What to do about the program's own error, if its words or the way it ended show that; else empty."""
    winner = ranking.winner
    if winner.cause not in ("user_error", "rank_killed", taxonomy.UNKNOWN):
        return ""
    # Other errors of a program that shows its own call for something else.
    beside = [f.event for f in view.findings] if winner.by_elimination else []
    shown = winner.evidence if winner.by_elimination else winner.evidence[:1]
    # The same message in another language has the same advice.
    lines = [(e.message, _in_plain(view, phrases.in_english(e))) for e in (*shown, *beside)]
    text = "\n".join([_in_plain(view, winner.words), *(words for _, words in lines)])
    if step := findings.advice(text):
        message = phrases.clean(next((m for m, words in lines if findings.advice(words)), ""))
        by_code = winner.words.startswith(_BY_CODE) and not view.signal and winner.cause != "rank_killed"
        if not message and by_code:
            return f"{_OUTPUT_FIRST}{step[0].lower()}{step[1:]}."
        return _quoting(f"{step}.", message, view, ranking)
    if winner.cause == "user_error" and not winner.by_elimination and any(map(findings.is_finding, shown)):
        return _TRACEBACK if "exception" in shown[0].detail else _ABOVE
    bare = winner.by_elimination and not winner.evidence and not beside
    return _LAST_COMMAND if bare and view.attempt.exit_code == 1 and not view.signal else ""


def _in_plain(view: evidence_view.EvidenceView, words: str) -> str:
    """The line as most shells print it. Some say `Permission denied` of a command that no directory of PATH has, where they may not read one, and end with 127."""
    return (
        _UNREADABLE_PATH.sub(r"\1command not found", words)
        if view.attempt.exit_code == _NO_COMMAND
        else words
    )


_NO_COMMAND = 127
_UNREADABLE_PATH = re.compile(r"(?<=: )((?:line )?\d{1,6}: [^\s/]{1,200}: )Permission denied$")


def _check(view: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> str:
    """The check that the findings suggest where nothing is proven; empty if the cause's own step is better."""
    winner = ranking.winner
    sure = ranking.confidence in (records.Confidence.CERTAIN, records.Confidence.LIKELY)
    by_text = bool(winner.evidence) and all(map(findings.is_finding, winner.evidence))
    if sure or not (by_text or winner.cause in ("user_error", taxonomy.UNKNOWN)):
        return ""
    ids = {e.event_id for e in winner.evidence}
    checkable = [f for f in view.findings if f.signature.check and (f.event.event_id in ids or not ids)]
    if checkable:
        check = checkable[0].signature.check.format(node=view.node_list or "its node")
        message = phrases.clean(checkable[0].event.message)
        return _quoting(check, message, view, ranking)
    return _ranks_waiting(view) if winner.cause == taxonomy.UNKNOWN else ""


_MOST_RANKS = 4


def _ranks_waiting(view: evidence_view.EvidenceView) -> str:
    """Names the ranks that waited in vain and where to look; empty if no finding names a rank."""
    waiting = {digits.index(f.event.detail.get("rank")) for f in view.findings if f.signature.onset}
    ranks = sorted(r for r in waiting if r is not None)
    if not ranks or any(f.event.source == "probe" for f in view.findings):
        return ""  # the probe names more
    names = (
        f"Rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
        if len(ranks) <= _MOST_RANKS
        else f"{len(ranks)} ranks"
    )
    where = f" of {view.node_list}" if view.node_list else ""
    return (
        f"{names} waited in vain. Look at the other ranks: at their last output, and at the kernel logs and links{where}. "
        "If it happens again, run it with the probe (docs/probe.md), which names the rank."
    )
