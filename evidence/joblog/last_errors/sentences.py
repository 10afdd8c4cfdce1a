"""Words in lines without a form of their own: what names an error, what is harmless, how a program refuses its input, and the text below a warning's heading."""

from __future__ import annotations

import re
from collections.abc import Reversible
from itertools import islice

from probing_cluster.core import vocabulary
from probing_cluster.evidence import wrapper_lines

_WORDS = re.compile(
    r"(?:errors?|fatal|fail(?:ed|ure|ures|s)|abort(?:ed|ing)?|cannot|can't|could(?: not|n't)|unable to|invalid|illegal|not found|no such|missing|exceed(?:ed|s)?|unexpected|unrecogni[sz]ed|unknown|undefined|unsupported|(?:not|to) converge[ds]?|diverge[ds]?|divergence"
    r"|corrupt(?:ed)?|denied|refused?|overflow|singular|crash(?:ed)?|panic|exception|must (?:be|have|not|contain)|required|requires|not (?:enough|an?)|no (?:more )?(?:room|space)|insufficient|out of (?:memory|range|bounds)|too (?:many|large|small|few|long|short)|does(?: not|n't)|(?:is|are|was|has|have|will) not"
    r"|violat\w{2,4}|mismatch|inconsistent|not (?:allowed|permitted|available|implemented|defined|set|valid|positive|supported|match|recogni[sz]ed|in \w{1,20} format)|no .{1,60}\b(?:specified|given|provided|selected|supplied|found)|nans? (?:in|at|found|detected|encountered)|(?:is|became|of|contains?) nans?|bad|wrong|incorrect|expired|exhausted|inaccurate|(?<!\w )problems? (?:with|in|while|when|reading|opening|writing|loading)|needs?|impossible|(?:not|no .{1,80}) possible)\b",
    re.IGNORECASE,
)


def names_error(text: str) -> bool:
    """Whether a word for an error stands anywhere in the line; before a bad end, and behind a tool's name, that is enough."""
    return _WORDS.search(text) is not None


_SUBJECT = r"(?:The|This|That|These|Your|An?|All|Each|Every|Only|Option|Parameter|Argument|File|Number|Length|Input|[A-Z]{2,12}|-{1,2}\w[\w-]{0,40}|[\"'`]\S{1,200})\b[^;]{0,200}?"
_STATE = r"(?:an? (?:valid|legal|known|recogni[sz]ed|supported|directory|file|number|integer|regular|multiple)|valid|defined|declared|recogni[sz]ed|supported|allowed|permitted|implemented|found|compatible|consistent|readable|writable|sorted|sufficient|equal|in (?:the )?(?:range|list|right format)|specified|initiali[sz]ed|accessible|executable|symmetric|positive|divisible)"
_DONE_TO = r"(?:read|opened|found|used|parsed|converted|loaded|processed|created|written|determined|allocated|resolved|accessed|satisfied|continued|started|executed|applied|combined|located|reached|computed|calculated|inverted|solved|imported|initiali[sz]ed|larger|smaller|less|greater|negative|zero|empty|both|specified|given|set)"
OBJECTS = r"(?:end|eof|EOF|tokens?|characters?|symbols?|values?|numbers?|lines?|keywords?|arguments?|options?|parameters?|formats?|types?|input|records?|sections?|strings?|responses?|status|exceptions?|syntax|dimensions?|sizes?|passwords?|versions?|order|files?|lengths?|usage|shapes?|indices|index|names?|definitions?|entry|entries|labels?|identifiers?|atoms?|ids?|declarations?|variables?|sequences?|columns?|fields?|memory|space|disk|data|points|processors|cores|slots|ranks|tasks)"
"""What a program reads, and complains of."""
_PARTS = r"(?:commands?|expressions?|statements?|keys?|references?|pointers?|licen[sc]es?|paths?|director(?:y|ies)|address(?:es)?|operations?|instructions?|functions?|modules?|devices?|configurations?|settings?|requests?|access|states?|permissions?|credentials|nodes?|elements?|namelists?|basis|units?|flags?|switch(?:es)?|modes?|methods?|library|libraries|dependency|dependencies|headers?|boundary|card)"
_WORD_CHARS = r"[\w'\"./#()-]{1,40}"
STATE = (
    r"(?:(?i:panic)(?=\s?[:!(])|(?i:fatal|abort(?:ed|ing)?|failed|unexpected(?:ly)?|invalid|illegal|unrecogni[sz]ed|undefined|unsupported|missing)"
    r"(?=\s?[:!(;,]|[.!]{0,3}$|\s(?:at|in|on|from|while|when|during|because|due|after|by|with|to|for|reading|writing|opening|loading|creating|parsing|allocating|initiali[sz]ing)\b"
    rf"|\s(?:{_WORD_CHARS} ){{0,3}}?(?:{OBJECTS}|{_PARTS})(?:\W{{0,3}}$|[.!] |\s?[:,(;\"'\[<]|\s(?:in|at|on|for|of|to|from|with|is|must|name|type|format|given|specified|found|file|and|or)\b|\s[A-Z][A-Z\d_]{{1,40}}\b|\s\S{{0,40}}[./_\d'\"-])))"
)
"""A word for a state in front of what is in it: `Invalid option -x`. Alone it begins many a sentence: `Invalid molecules were dropped`."""
_REFUSED = re.compile(
    r"(?!.*:$)(?:\[\w{1,60}\] )?(?:[\w./+-]{1,40}(?: [\w-]{1,20})?: )?(?:(?:Unexpected|Incorrect|Wrong|Too (?:many|few)|Incompatible|Inconsistent|Duplicate|Malformed|Not enough) "
    rf"{OBJECTS}\b(?!.{{0,80}}[:=]\s{{0,3}}(?:\[\]|none|\d))|No such \w|Sorry, \w"
    r"|Expected .{1,120}?(?:[,;]| but| and) (?:got|found|received|there)\b|(?!.*\b(?:no|any|without|simulat\w{2,4}|until|after|per)\b).{0,80}\b(?:(?:allocation|memory|malloc|open|read|write|convergence|license|network|authentication|communication|input|parse|system|internal|disk|lock|assertion|initiali[sz]ation|checksum|bus|segmentation|decoding) failure|(?:open|read|write|buffer|allocation|memory|parse|format|file) error|[Oo]ut of memory)[.!]?$"
    r"|No .{0,60}\b(?:files?|folder|directory|input|output|names?|sequences?|options?|arguments?|command|mode|path|reference|genome|structure|atoms?|parameters?|method|action|target|database|index|reads?|mesh|species|region)\b.{0,20} (?:specified|given|provided|supplied)[.!]{0,3}$|(?:No|no) (?:mesh|input|files?|data|reads?|sequences?|atoms?) found[.!]{0,3}$"
    rf"|{_SUBJECT}\b(?:(?:is|are|was|were)(?: not|n't) {_STATE}|(?:has|have)(?: not|n't) been (?:defined|declared|specified|initiali[sz]ed|implemented|allocated)|(?:do|does)(?: not|n't) (?:exist|match|contain|agree|fit|support|accept|conform|correspond|allow|have (?:enough|permission|the required|a valid))"
    rf"|(?:cannot|can not|can't|could not|must not|may not) be {_DONE_TO}|(?:cannot|can not|can't|could not) (?:read|open|find|use|load|parse|write|create|handle|allocate|determine|access)|must (?:have|contain|match|be (?:positive|an? |[<>=]|at least|at most|between|one of|the same|of the|specified|given|set|defined|provided|greater|less|larger|smaller|equal|odd|even|in |divisible|integers?|non|unique|square|finite|sorted))|(?:can|may) only be (?:used|given|specified|set|applied|run|called)|not (?:recogni[sz]ed|compatible|defined|implemented|consistent|found))"
    r"(?!\s?[:=]\s?\d)(?=\W|$))"
)
"""How a program refuses its input or its options in a sentence; it counts only as the log's last."""
_RESOLVED = re.compile(
    r"\b(?:using|assum(?:ed|es|ing)|selecting|setting|defaults?|turned (?:on|off)|subject to|not be (?:used|written|computed)|doing nothing|disabled|no longer|starting|treated|kept|keeping|leaving|merged|therefore|proceed\w{0,3}|final|yet)\b",
    re.IGNORECASE,
)
"""What the program did instead."""
_INSTEAD = re.compile(
    r"[,;.] (?:(?:so|and|now|thus) )?(?:(?:(?:we|I|it|this) )?(?:will|shall|we'll|I'll) (?:now |just |only )?(?:use|fall ?back|revert|(?:start|create|continue|proceed|download|run)(?! (?:no|nothing)\b)|assume|default(?! to nothing\b)|skip|disable|ignore|switch)"
    r"|(?:using|falling back|reverting|starting (?:from|with|fresh|anew|over|an?)|creating (?:one|it|an?|the|new|default)|continuing|proceeding|assuming|defaulting|skipping|disabling|ignoring|switching|downloading))\b(?!.{0,80}\b(?:not|fail\w{0,4}|invalid|undefined|unknown|forbidden|required|(?:is|are|was|were) disabled|problems?|trouble)\b)"
    r"|(?<=\w)[,;] ?(?:(?:so|and|now|thus) )?(?:running|training|working|going on|carrying on) without (?:it|them|this|that|these|those|one|any)\b(?!.{0,80}\b(?:not|fail\w{0,4}|(?:im|un)\w{3,12}|cannot|can't)\b)"
    r"|\bFailed to load image Python extension\b",
    re.IGNORECASE,
)
"""What the program does instead, in a clause of its own behind the complaint; and torchvision's warning about pictures."""
_BESIDE = re.compile(
    r"(?!.*\b(?:(?-i:ERROR|FATAL|CRITICAL|SEVERE)\b|(?:errors?|fatal|critical) ?[:\])]))"
    r".*?\b(?P<what>metric|log|trac|telemetry|profil|monitor|track|report|cach|stat|dashboard|notification|alert|upload|plot|wandb|tensorboard|mlflow)\w{0,8}\b[^,;]{0,200}"
    r"[,;] ?(?:(?:so|and|now|thus) )?(?:(?:the|its|all|live|online|remote) )?(?P=what)\w{0,8}(?: \w{1,20})? (?:is|are|was|were|will be|(?:has|have) been) (?:now )?(?:(?:(?:turned|switched) )?off|disabled|skipped|not (?:be )?(?:recorded|logged|reported|collected|sent|uploaded|cached|shown))\b",
    re.IGNORECASE,
)
"""What runs beside the work was not to be had and goes off: both clauses name it. Of anything else such a clause may be the reason, and a line at the level of an error is one."""
_ENDS_ALL_THE_SAME = re.compile(
    r"\b(?:fatal|abort\w{0,3}|exit(?:s|ing)?|quit\w{0,4}|giv(?:es|ing) up|terminat\w{1,4})\b", re.IGNORECASE
)
_FALLS_BACK = re.compile(
    r"(?!.*\b(?:you|please|should|must|try|required?|requires)\b)(?:.*\b(?:(?P<clear>using (?:the |an? |its )?(?:local|cached|built-?in|default|bundled|stored|previous|older?) (?:copy|data|cache|version|values?|settings?|config\w{0,10}|implementation|weights)\b|using (?:the )?(?:[\w./+-]{1,40} ){1,4}instead(?! of)\b|instead using\b|(?:falls?|falling) back (?:to|on)\b)|using (?:the )?(?:[\w./+-]{1,40} ){1,4}attention\b|(?:default|revert|switch)(?:s|ed|ing)? (?:back )?to\b|will use (?!\d)|(?:running|training|proceeding|going on) without\b|disabling\b)"
    r"|(?!.*(?:error|exception|fail|abort|fatal|exit|cannot|not )).*\b(?:disabled|(?:turned|switched) off)[.!]?$)",
    re.IGNORECASE,
)
_LACKED = re.compile(
    r"No module named '(?P<module>[\w.-]{1,200})'|cannot import name '(?P<name>\w{1,200})' from '(?P<of>[\w.-]{1,200})'"
)
_BACKENDS = re.compile(
    r"attention|attn|flash|sdpa|triton|xformers|apex|bitsandbytes|deepspeed|tensorrt|transformer.engine|inductor|dynamo|cudnn|nccl|gloo|fused",
    re.IGNORECASE,
)
"""Parts that a program replaces by others."""
_SAME = {"attn": "attention"}
_WORDS_OF_NAMES = re.compile(r"[A-Za-z\d]{3,60}")
_PARTS_OF_NAME = re.compile(r"[._-]")
_NAME_CHARS = 3
_NOUNS = r"errors?|failures?|exceptions?|faults?|critical|severe|alerts?|fatal|nans?"
_COMPOUND = re.compile(
    rf"^(?:(?!\b(?:{_NOUNS})\b).){{0,200}}\b(?:{_NOUNS})[ -](?:check(?:s|ing)?|correct(?:ion|ing)|handl(?:ing|ers?)|report(?:s|ing)?|log(?:s|ging)?|counters?|counts?|budget|rates?|estimat\w{{1,4}}|bars?|norms?|metrics?|toleran\w{{2,3}}|thresholds?|detection|recovery|propagation|analysis|model|bounds?|terms?|margins?"
    r"|paths?|points?|temperatures?|values?|mass|exponents?|pressure|density|levels?|load|weather|decreas\w{1,3}|falling|remain\w{1,3}|dropp\w{2,3}|increas\w{1,3}|growing|is|are|stays?)\b(?!.{0,80}\b(?:fail\w{0,4}|cannot|could|unable|not|invalid|missing|exceed\w{0,3}|too|in)\b)",
    re.IGNORECASE,
)
"""A name with "error" in it, the first such word of the line."""
_HARMLESS = re.compile(
    r"\b(?:fail(?:ed|ures?)|errors?|exceptions?|missing|invalid|unexpected|unrecogni[sz]ed|aborted|undefined|duplicate|nans?)\b[^:=]{0,40}[:=]\s{0,4}(?:\[\]|\{\}|\(\)|none\b|nothing\b|no\b|nil\b|ok\b|see\b|within\b|below\b|small\b|low\b|tiny\b|handled\b)|[:=]\s{0,3}none[.!]?$|\boff[.!]?$|\b(?:are|is|were|was) (?:stored|saved|kept|written|mapped|moved|in) (?:in|to|into|as|table|\S{1,60}\.\w{2,5}$)|\b(?:failed|invalid|missing|unexpected|aborted|rejected) (?:\w{2,20} )?(?:\w{2,20}s|fraction|rate|share):? [\d.]{1,12}%?$|\bnone (?:\w{1,12} )?(?:failed|raised|found|detected|encountered|aborted|missing|invalid)\b|^(?:failures?|errors?|failed) 0\b"
    r"|\b(?:with)?in (?:the |its |their )?(?:\w{1,20} )?toleran\w{2,3}\b|\b(?:imputed|masked|clipped|clamped|filtered|(?:were|was|rows|columns|samples|values|cells|entries|and) (?:dropped|removed|excluded|replaced|filled|merged|repaired)|(?:dropped|removed|excluded):|scaled? (?:down|reduced|halved)|(?:are|is) listed|listed below|will be (?:repeated|rerun|re-run|tried again))\b"
    r"|\b(?:stopping early|early stopping|stopp?(?:ed|ing) early|improvements?|(?:better|best) (?:solution|state|value|model|one|split)|runs? on the CPU|target \w{1,20} (?:is |was |has been )?reached|(?:to|not|cannot be) improved?|improve .{0,40}(?:any )?further|not improved?|from scratch|as (?:expected|intended|requested)|on purpose|by design|recovered|(?:tolerance|convergence|target|goal|patience|budget|accuracy) (?:is |was |has been )?(?:reached|met|satisfied)|criteri\w{1,2} (?:is|was|were|are)?\s?(?:not )?(?:reached|met)|target \w{1,20} not reached)\b",
    re.IGNORECASE,
)
"""Ordinary words: a count of none, what was done about it, an end on purpose."""


def is_harmless(text: str) -> bool:
    """Whether the line speaks of errors in the words of a run that goes well."""
    return _HARMLESS.search(text) is not None or is_compound(text)


def is_compound(text: str) -> bool:
    """Whether the line is about something with "error" in its name, which itself did not fail."""
    return _COMPOUND.search(text) is not None


def is_resolved(text: str, *, is_error: bool = False) -> bool:
    """Whether the line reports what the program does instead of what it could not do: it goes on. `is_error`: its logger gave it the level of an error."""
    goes_on = _INSTEAD.search(text) is not None or (not is_error and _BESIDE.match(text) is not None)
    return goes_on and _ENDS_ALL_THE_SAME.search(text) is None


def falls_back(text: str, exception: str) -> bool:
    """Whether a program that has printed `exception` reports in this line below it what it does instead.

    What is switched to or off must be what the exception lacked; a program reports such settings at every start.
    """
    found = _FALLS_BACK.match(text)
    if found is None or wrapper_lines.is_wrapper_line(text):
        return False
    return found["clear"] is not None or not _named(text).isdisjoint(_lacked(exception))


def _named(text: str) -> set[str]:
    words = {word.lower() for word in _WORDS_OF_NAMES.findall(text)} | set(
        map(str.lower, _BACKENDS.findall(text))
    )
    return {_SAME.get(word, word) for word in words}


def _lacked(exception: str) -> set[str]:
    """The module that it did not find, and backends that it names."""
    found = _LACKED.search(exception)
    names = [name for name in found.groups() if name] if found else []
    parts = {p.lower() for name in names for p in _PARTS_OF_NAME.split(name) if len(p) >= _NAME_CHARS}
    return {_SAME.get(p, p) for p in parts | set(map(str.lower, _BACKENDS.findall(exception)))}


def refuses(text: str) -> bool:
    """Whether a program refuses its input or its options in this sentence, and does nothing else instead."""
    return _REFUSED.match(text) is not None and _RESOLVED.search(text) is None and not is_resolved(text)


_WELL = re.compile(
    r"\b(?:passed|success(?:ful(?:ly)?)?|succeeded|completed?|done|finished|all (?:tests )?passed|saved|100 ?%|converged|normal(?:ly)? terminat\w{1,4}|step created|(?:terminat|end|exit)\w{0,3} normally(?!,? but\b)|ended? ok|(?<![-\w])exit(?: code| status)? 0(?![\w.])|configure: exit 0)\b|(?:^|(?<=, ))ok$",
    re.IGNORECASE,
)
_NOT_WELL = re.compile(
    r"\b(?:not|un|in|never|without|before|could|cannot)\b.{0,24}$|(?:un|in)$", re.IGNORECASE
)


def went_well(text: str) -> bool:
    """Whether the line reports a success."""
    return any(not _NOT_WELL.search(text[: found.start()]) for found in _WELL.finditer(text))


_ABOVE_LINES = 3
_WARNING = re.compile(
    r"(?:--> FOAM Warning\b.*|Warning messages?:|Message from routine \S{1,60}|[\W_]{0,40}(?:WARNINGS?|Warnings?|NOTE|Note)[\W_]{0,40})$"
)
_OF_PYTHON = re.compile(r"\S{1,400}\.py:\d{1,7}: \w{0,60}Warning: \S")
_BODY_LINES = 6
"""Python prints a warning behind its place; its text goes on to the line of source below it, or to the next empty line."""
_SOURCE = re.compile(r"  \S")
_PLACE_OF_WARNING = re.compile(r"\W*$|\s{2,}(?:From function|in file)\b")
_CALLS_ITSELF = re.compile(r"\W{0,8}(?:(?i:fatal )?(?:ERROR|Error|error)|FATAL|Fatal|fatal)\b")


def is_warned(text: str, before: Reversible[str]) -> bool:
    """Whether the line is the text of a warning whose heading stands above."""
    if _CALLS_ITSELF.match(text):
        return False
    for line in islice(reversed(before), _BODY_LINES):
        if _OF_PYTHON.match(line.strip()):
            return True
        if not line.strip() or _SOURCE.match(line):
            break
    above = (line for line in islice(reversed(before), _ABOVE_LINES) if not _PLACE_OF_WARNING.match(line))
    return _WARNING.match(next(above, "").strip()) is not None


_POINTS = re.compile(
    r"\b(?:see|check|look|refer|consult|inspect|details?|information|reasons?)(?: (?:is|are|can be found|may be found|at|in|into|to|for|the|your|its|this|any|full|whole|job|slurm|program|solver|run|previous|standard|file)\b(?![./])){0,5}+ "
    r"(?:(?:[\w./-]{1,60} )?(?:logs?|logfiles?|error (?:files?|logs?)|(?:error )?messages?|outputs?|stderr|stdout|errors? (?:above|below))\b|above\b|below\b|\S{1,200}\.(?:log|err|out)\b)[^:]{0,100}$",
    re.IGNORECASE,
)
_WITHOUT_REASON = re.compile(
    r"[\W\d]*+(?:(?:fatal|critical|errors?|exceptions?|failures?|the|an?|this|your|some|one|more|or|and|there|it|run|job|program|execution|simulation|calculation|pipeline|analysis|step|training|script|workflow|build|solver|process|task|command|application|code"
    r"|failed|fails|aborted|aborting|abort|crashed|stopped|stopping|halted|terminated|exiting|exited|ended|finished|completed|complete|finish|unsuccessful(?:ly)?|abnormally|prematurely|unexpectedly|has|have|had|been|was|were|is|are|did|could|not|with|by|due|to|because|of|an|in|during|occurred|found|detected|encountered|happened|please|for|details?|information|reasons?|[\w.-]{1,40}(?=:))\b[\W\d]*+){0,24}+\Z",
    re.IGNORECASE,
)
"""Words of a bad end, none of which is a reason."""


def points_elsewhere(text: str) -> bool:
    """Whether a program reports only that it ended badly and where its error is printed: the line is no error itself."""
    found = _POINTS.search(text[:_MAX_CHARS])
    return (
        found is not None
        and len(text) <= _MAX_CHARS
        and _WITHOUT_REASON.match(text[: found.start()]) is not None
    )


_OF_EXIT = r"(?i:(?:[\w./-]{1,60}\.(?:sh|py|sbatch|slurm)|the|this|slurm|batch|epilogue?|job|script|program|command|process|step|task|run|training|main|python\d?|srun|mpirun|torchrun|finished|ended|exited|done|terminated)\W{1,3}){0,6}+"
_REPORTS_EXIT = re.compile(
    r"(?!=\s{2}|.{0,80}\b(?i:tests?|grep|diff|cmp|expected|errors?|fail\w{0,4})\b)(?:\[[^\]\n]{1,40}\] {0,2}){0,3}\W{0,12}"
    rf"{_OF_EXIT}(?:(?i:at) .{{10,40}}?\W{{1,3}}{_OF_EXIT})?"
    r"(?i:(?:with )?(?:an? )?(?:exit[ _-]?(?:code|status)|return[ _-]?code|status|rc)(?: (?:is|was|of)(?: [\w./-]{1,40})?)?)\s{0,3}[:=]?\s{0,3}(?P<code>[1-9]\d{0,2})\W{0,6}$"
)
_OF_ENDED = re.compile(r"(?i:exit|rc\b|return|(?:finished|ended|exited|terminated)\b.{0,60}\bstatus)")
_MAX_CODE, _MAX_CHARS = 255, 600
_WENT_ON = re.compile(r"\b(?i:ok|retry\w{0,3}|again|passed|succe\w{2,6})\b")


def reports_exit(body: str, below: str) -> bool:
    """Whether a script reports in `body` that a command, or the job, ended with a code that is no signal's; `below`: the next line, which may show that it went on."""
    found = _REPORTS_EXIT.match(body)
    if found is None or _OF_ENDED.search(body) is None or _WENT_ON.search(below):
        return False
    code = int(found["code"])
    return code <= _MAX_CODE and not vocabulary.signal_of(code)
