"""Decides whether a line reports an error or only mentions one: prose, quotes, data, chat, code.

Jobs that train on text print text, which may mention errors. Errors that only hardware can cause need the strictest form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Reversible
from itertools import islice

_SPEAKER = re.compile(
    r"(?:^|[\s\[{(\"'#*>])(?:prompts?|users?|human|assistant|chosen|rejected|questions?|answers?|instructions?|responses?|completions?|query|"
    r"references?|refs?|golds?|ground.?truth|translations?|captions?|summary(?!: ThreadSanitizer: )|abstract|notes?|top-\d{1,4}|docs?(?:ument)?#|expect(?:ed)?|patterns?|predictions?|generated|targets?|hyp(?:othesis)?|decoded|samples?|documents?|texts?|contents?|inputs?|outputs?|labels?|titles?|q|a)"
    r"(?:\s?\d{1,6})?[\"'\])*]{0,3}\s?[:=>]",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"^(?!\"hipError\w{2,60}: )\s*(?:\d{1,6}(?:\s*[|│:]\s*|\s{2,}))?(?:#(?!\d|#{1,80} (?:(?:FATAL|ERROR)\b|[A-Z]\w{1,20} (?:[A-Z]{3,20} )?ERROR! |[A-Z]\w{1,20} [A-Z_]{3,30} Error: )| (?:[A-Z]{2,20} : (?:FATAL|ERROR) :|A fatal error has been|There is insufficient memory|UNRECOVERABLE ERROR|Ended \(code|Out of bounds values : [1-9]\d{0,17}) | {2}SIG)|//(?![\w.-]{1,60}/\S)|/\*(?!\*\*)|raise\b|if\b(?!: [A-Z][\w ]{2,40}\.$)|elif\b|except\b|return\s+(?!code)|print\(|(?:echo|printf) |assert\b|self\.|def\b|class\b|log(?:ger|ging)?\.\w+\(|[a-z_]\w{1,40}\(\"[^\"]{0,200}%.{0,400}[,;]\s*$|warnings\.|(?:[fF][rR]?|[rR][fFbB]?|[bB][rR])?[\"'`]|>{1,3}\s(?!Error \[C\w{1,60}[:\]])|\.\.\. |[\w.]+ = [\[({]{0,2}(?:(?:[fF][rR]?|[rR][fFbB]?|[bB][rR])?[\"']|[\w.]{1,80}\($))"
)
_TITLE = re.compile(
    r"^[\s*|/\\_]{0,24}(?:commit:? )?(?=[0-9a-f]{0,39}\d)(?=[0-9a-f]{0,39}[a-f])[0-9a-f]{7,40}\s+(?=[A-Za-z(])(?!\w+(?:\.\w+)*(?:Error|Exception)\b:)"
    r"|^\W{0,8}(?:(?:feat|fix|docs|refactor|chore|revert)(?:\([\w./,-]{1,40}\))?|(?:style|perf|tests?|build|ci)\([\w./,-]{1,40}\))!?: "
    r"|^\W{0,8}(?:fix(?:e[sd])?|close[sd]?|resolve[sd]?|merge pull request|issue|see|refs?)\W{1,3}#?\d{2,7}\b"
    r"|^\W{0,4}#\d{2,7}\b(?!: \S{1,120} line \d)|\(#\d{3,7}\)\s*$"
    r"|^\W{0,8}(?:known|open|closed) issues?\b|^\W{0,8}(?:todo|faq|hint|tip|subject|changelog)\b\W{0,3}[: ]"
    r"|^[+-]\s{1,40}(?:raise|except|return|assert|print|log|#|//)\b|^\s*<!--",
    re.IGNORECASE,
)
"""The title of a commit (`git log --oneline`), a change, an issue or a piece of advice: it mentions past errors."""
_TRACE = re.compile(r"^\s*\+{1,8} (?!Exception Group|\w{1,20} error$)\S")
"""A command as a shell prints it before it runs it (`set -x`), or a line that a patch adds."""
_LISTED = re.compile(
    r"\s{0,8}[\w./~@+-]{1,300}\.(?:out|err|log|txt|md|rst)(?:[:-]\d{1,9}[:-]|:(?=\S))"
    r"|[\w./~@+-]{1,300}\.(?:ya?ml|jsonl?|csv|tsv|toml|html?|ini|cfg)[:-]\d{1,9}[:-]"
    r"|[\w./~@+-]{1,300}\.(?:py|pyx|c|cc|cpp|cu|cuh|h|hpp|sh|bash|f90|rs|go|java|scala|js|ts|jl|lua)[:-]\d{1,9}[:-](?:\s{2,}\S|\s?(?:raise|return|if|elif|except|assert|def|class|throw|fn|func)\b|\s?(?:#|//|\"|'|print\(|self\.|log\w{0,4}\.))"
    r"|\S{1,300}\.py::\S.{0,400}\s(?:PASSED|FAILED|SKIPPED|XFAIL|XPASS|ERROR)\b"
)
"""Results of a search in other files (`run-17.out:88:…`) and in source code, which keeps its indentation after the line number
(Python's warnings and pytest write one blank and a name), and names of tests, whose parameters may be errors."""
_PIECE = re.compile(
    r"^\W*(?:\d{1,7}(?:/\d{1,7})?\W{1,3}(?=[a-z]))?(?:[qa](?=: \S)|(?:(?:generated|predicted|decoded|sampled|model|llm)(?:'s)?[ _](?:text|output|answer|response|reply|summary|translation|caption|code)|prompt|question|answer|query|user|human|assistant|chosen|rejected|instruction|completion|reference|prediction|hypothesis|generated)s?"
    r"(?:\s?\d{1,6})?|(?:doc(?:ument)?|passage|chunk|hit|candidate|snippet|sample|example|result|template)s?\s?[#:]?\d{1,6}(?:\W{1,3}(?:score|sim(?:ilarity)?|dist(?:ance)?|rank|prob|p)\W{0,3}[\d.e+-]{1,20}\)?)?)(?:\s?[:=>]|\s\|)\s",
    re.IGNORECASE,
)
"""A text that a chat, a data set or a search prints: the whole line belongs to it."""
_QUOTATION = re.compile(
    r"(?<![^\s(\[,*|+-])(?:\"(?=[^\"\n]* [^\"\n]* )[^\"\n]{12,4000}\"|`(?=[^`\n]* [^`\n]* )[^`\n]{12,4000}`|“[^“”\n]{12,4000}”)"
)
"""A closed quotation of three words or more; one that follows a key's `=` or `:` is that key's value."""
_EXAMPLE = re.compile(
    r"(?:比如|例如|譬如|例えば)\s{0,2}[：:，,、]?\s{0,2}(?:“[^“”\n]{12,4000}”|「[^「」\n]{12,4000}」)"
)
"""A Chinese or Japanese text that quotes an error as an example. Any other quotation in these languages may report one."""
_REPORTS = re.compile(
    r"\b(?:error|exception|failed|failure|fatal|reason|message|msg|stderr|output)\W{0,4}$", re.IGNORECASE
)
"""A quotation after these words reports an error."""
_KEY = re.compile(
    r"[{,]\s*(?P<quote>[\"'])(?P<key>[^\"']{1,60})(?P=quote)\s*:\s*[\"'](?:[^\"'\\]|\\.|(?<=\w)'(?=\w))*$"
)
_LOG_KEYS = frozenset({
    "msg", "message", "error", "err", "exception", "exc_info", "exc", "traceback", "stack", "stacktrace", "stderr", "stdout", "log", "line", "data",
    "detail", "reason", "event", "body",
})  # fmt: skip
_TRACE_KEYS = frozenset(
    {
        "stack_trace",
        "stack_info",
        "exc_text",
        "py_callstack",
        "error_message",
        "textpayload",
        "exception_message",
        "formatted_exception",
    }
)


def is_log_key(key: str) -> bool:
    """Whether a record's key is one under which loggers write what happened."""
    return key.lower() in _LOG_KEYS or key.lower() in _TRACE_KEYS


_REPR = re.compile(r"\b\w*(?:Error|Exception)\([\"']$")
"""A caught exception as Python represents it."""
_SPACED = re.compile(r"\S+")
_PLAIN = re.compile(r"[(\[{]?[A-Za-z][a-z'’]*[,.;?!)]*|[A-Z]{1,12}[,.;?!)]*|\S*[?]")
"""A word of a sentence, unlike `torch.cuda`, `n03`, `0x7f`, `what():`."""
_ENDS = re.compile(r"(?:^|\w\.|[:\])>|=\-'\"(,»│])\s*$")
"""Possible ends of the text before a reported error; in a sentence, the text runs on into the error."""
_REPORTER = re.compile(
    r"\w(?:Error|Exception)\b|what\(\):|exception: |\bWARN\b|\.(?:cc|cpp|cu|cuh|h|hpp|py|c)\b[:\d(, ]"
)
_SOURCE = re.compile(
    r"^(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{1,9}: )?[EFW](?:\d{4} [\d:.]{8,18}\s{1,8}\d{1,10})? ?[\w./-]{1,200}\.(?:cc|cpp|cu|cuh|h):\d{1,6}\] "
)
"""The head that Abseil's and Google's loggers write: severity, file, line."""
_REPORT = frozenset({
    "a", "abort", "aborted", "aborting", "accelerator", "after", "allocate", "an", "and", "assert", "async", "asynchronous", "at", "been", "by", "call",
    "called", "cannot", "catch", "caught", "check", "code", "context", "copy", "core", "could", "create", "creating", "critical",
    "cublas", "cuda", "cudnn", "debug", "destroy", "detected", "determine", "device", "device's", "driver", "due", "during", "e",
    "encountered", "engine", "enqueue", "error", "event", "exception", "execute", "executing", "execution", "f", "fail", "failed", "failing",
    "failure", "fatal", "file", "following", "for", "free", "freeing", "from", "function", "got", "gpu", "group", "guid", "handle", "has", "hip",
    "i", "id", "in", "info", "initialization", "initialize", "instance", "internal", "invalid", "is", "kernel", "last", "launch", "library",
    "line", "malloc", "memcpy", "memory", "nccl", "not", "notice", "of", "on", "operation", "peer", "pg", "process", "query", "raised", "rank",
    "rank's", "rccl", "reached", "reboot", "recover", "reported", "result", "returned", "runtime", "status", "stream", "synchronize",
    "system", "terminate", "terminated", "test", "the", "this", "thread", "throwing", "thrown", "to", "torch", "trace", "trainer",
    "transform", "unable", "uncaught", "unexpected", "unhandled", "unknown", "w", "warn", "warning", "was", "watchdog", "what", "with",
    "worker",
})  # fmt: skip
"""The words in reports of runtimes and launchers; other words show that the line is prose."""


_SETTING = re.compile(
    r"\s*(?:[-*]\s+)(?:(?!(?:error|message|msg|reason|stderr|exception|output|detail|event|line|log)\b)[A-Za-z][\w.-]{0,60}\s?[:=]\s?)?(?P<q>[\"'`]).*(?P=q),?\s*(?:#.*)?$"
    r"|\s*(?:export\s+)?(?:match(?:es)?|patterns?|regexp?s?|regexes|grep|contains|trigger|signature|needle|rules?|when|on_error|retry_(?:on|if)|\w{1,40}[_-](?:match|patterns?|regexp?s?|on|if|policy|signatures?))"
    r"\s?[:=]\s?[\[({]{0,2}(?P<r>[\"'`]).*(?P=r)[\])}]{0,2},?\s*(?:#.*)?$"
    r"|\s*(?:[-*]\s+)?(?:match(?:es)?|patterns?|regexp?s?|regexes)\s?[:=]\s?\S",
    re.IGNORECASE,
)
"""A setting with a quoted value or a pattern, such as a policy for an error."""


_QUOTES = re.compile(
    r"(?:^|\s)(?:quot(?:e|es|ed|ation)|zitate?|citas?|citations?|citazion[ei])\s?: ", re.IGNORECASE
)
"""A quotation follows, which is not the program's own message."""
_DATA_KEY = re.compile(
    r"', '(?:cause|label|labels|answer|question|category|solution|diagnosis|target|response|completion|explanation)': "
)
"""Keys of a data set beside its text, in a dictionary as Python prints it; no logger writes that."""


def is_speech(text: str) -> bool:
    """Whether the whole line is data, chat, code or a setting."""
    if (
        any(p.match(text) for p in (_CODE, _TRACE, _LISTED, _PIECE, _TEST, _SETTING))
        or _TITLE.search(text)
        or _TABLE_ROW.search(text)
        or _PLACEHOLDER in text
    ):
        return True
    if any(p.search(text) for p in (_DELIBERATE, _DENIED, _SUPPOSED, _QUOTES)):
        return True
    if _MADE.match(text) and _SPEAKER.search(text):
        return True
    opening = text.lstrip()[:1]
    if opening in ("{", "[") and (
        found := re.search(r"[{,]\s*[\"'](?P<key>[\w ]{1,40})[\"']\s*:\s*[\"\[{']", text)
    ):
        if found["key"].lower() not in _LOG_KEYS:
            return _SPEAKER.search(text) is not None
        return opening == "{" and _DATA_KEY.search(text) is not None
    return False


_PLACEHOLDER = "<*>"
"""Stands for a variable part where log parsers (Drain, Spell) print the forms of lines that they found."""
_MADE = re.compile(r"\s{0,8}(?:\d{1,7}\W{1,3})?[A-Z]\w{1,60}\(\w{1,40}=")
"""A record as Python represents it."""


def begins_with_speaker(text: str) -> bool:
    """Whether the line begins with the name of a text, as data sets and chats print theirs (`text: …`)."""
    return _SPEAKER.match(text.lstrip()) is not None


_DELIBERATE = re.compile(
    r"\((?:\w+ ){0,2}(?:injected|simulated|deliberate|intentional|expected)\)|\binjecting (?:an? )?(?:\w+ )?\w*(?:fault|error|failure)\b"
    r"|^\W{0,3}(?:inject(?:ed|ing)?|simulat(?:ed?|ing)|fake|mock(?:ed)?|replay(?:ed|ing)?)\s?[:=>-]+\s",
    re.IGNORECASE,
)
"""The line reports that the error is injected or simulated."""
_ERROR_NAMES = (
    r"(?:(?:CUDA|HIP|GPU|host|device|cgroup)\s)?(?:out[ -]of[ -]memory|OOMs?\b|oom[-_ ]kill\w{0,4}|illegal memory access|uncorrectable|ECC errors?|segmentation faults?|segfaults?|bus errors?"
    r"|Xids?\b|disk quota exceeded|MemoryErrors?|watchdog timeouts?|I/O errors?|(?:CUDA|NCCL|HIP|NVML|UCX|MPI|gloo) (?:errors?|timeouts?|failures?))"
)
_DENIED = re.compile(
    rf"\b(?:no|never(?: (?:saw|seen|had|hit|met|got))?|without(?: any)?|free of)\W{{1,3}}(?:(?:more|further|new|such|any|single) )?{_ERROR_NAMES}"
    rf"|{_ERROR_NAMES}[\s:=]{{1,3}}(?:(?:errors?|events?|kills?|counte?r?s?|hits?)[\s:=]{{1,3}}){{0,3}}(?:(?:is|are|was|were)\s)?(?:0(?=\W{{0,3}}$|[,;)\]]|\.\s|\s(?:so far|seen|detected|times|in)\b)|none\b|handled\b|avoided\b|not (?:seen|detected|observed|found)\b|so far\b)",
    re.IGNORECASE,
)
"""A report that there was no such error."""
_SUPPOSED = re.compile(
    r"\b(?:if|when(?:ever)?|in case|should) (?:you|we|one|users?) (?:\w{1,12} )?(?:see|get|hit|encounter|run into|receive|meet|observe|find)s?\b",
    re.IGNORECASE,
)
"""Advice for an error that the reader may meet."""
_TEST = re.compile(r"^test\w{0,120} \([\w.]{1,200}\)(?: \.\.\.|$)|^\S{1,300}\.py::\S{1,300} ")
"""The beginning of a test's line in unittest and pytest; its output follows in the line, its result below."""


_INDENTED_HEAD = re.compile(r"\s+(?:[|+] )?Traceback \(")
_WARNS = re.compile(
    r"\[[WID] \d{4}-\d\d-\d\d |\[[EWID] (?:\d{4}-\d\d-\d\d |\d{6} )?\d\d:\d\d:\d\d(?:\.\d{1,6})? \w{1,30}App\] |(?:\[?[\d:., TZ-]{8,32}\]? ?)?(?:- )?\[?(?:WARNING|INFO|DEBUG)\b"
)

_REQUEST = re.compile(r"\s{2,12}HTTPServerRequest\(")
"""A notebook's server shows the request that failed before its traceback."""


def is_handled_traceback(head: str, before: Reversible[str]) -> bool:
    """Whether the traceback that begins with the line `head` is indented below a logger's warning or note, : the program handled it.

    Blanks that belong to a progress bar in front of the traceback are no indentation.
    """
    if not _INDENTED_HEAD.match(head):
        return False
    above = next((line for line in islice(reversed(before), 2) if not _REQUEST.match(line)), "")
    return _WARNS.match(above) is not None


_PRINTS = re.compile(r"^\s*\+{1,8} (?:echo|printf|print|cat|logger|grep|sed|awk|git)\b")
_TRACE_LINES = 6
_MARK = re.compile(r"^\s*(?P<tag>\[[^\]\n]{1,60}\]\s{1,2}|[\w.@/-]{1,60}:\s{1,2})?[|>│](?:\s|$)")
_OTHER_RUN = re.compile(
    r"\b(?:job|run|attempt|task|step)\s?#?\d|\b(?:other|another|previous|earlier|old|last|yesterday)\b.{0,60}\b(?:job|run|attempt|log|output|error)\b"
    r"|[\w./-]\.(?:out|err|log|txt|md)\b",
    re.IGNORECASE,
)


_JUDGED_PROGRAM = re.compile(
    r"\b(?:candidate|completion|solution|submission|snippet|sample|example|problem|test case|mutant)s?\b.{0,40}\b(?:fail|error|rais|crash|wrong|reject)",
    re.IGNORECASE,
)
"""A program that the job runs to judge it; the program's errors stand behind a margin."""
_TAG = re.compile(r"\[[^\]\n]{1,60}\](?=\s|$)")
_PIECE_LINES = 12
"""Most lines of a text that a chat or a data set prints."""


def _continues_a_piece(text: str, before: Reversible[str]) -> bool:
    """Whether an indented line continues a question or an answer above it, under the same tag."""
    tag = found[0] if (found := _TAG.match(text)) else ""
    if not text.removeprefix(tag).startswith("    "):
        return False
    for line in islice(reversed(before), _PIECE_LINES):
        if not line.startswith(tag):
            return False
        body = line.removeprefix(tag)
        if body.strip() and not body.startswith("    "):
            return _PIECE.match(body.strip()) is not None
    return False


_ANNOUNCES = re.compile(
    r"\b(?:if|when|whenever|in case|should) (?:you|one|we|they|users?|people|students?) (?:ever )?(?:sees?|gets?|encounters?|meets?|runs? into|hits?)\b"
    r"|\byou (?:might|may|would|will|could) see\b|\b(?:for example|for instance|e\.g\.)\W{0,4}$|\blooks? like\b.{0,24}$",
    re.IGNORECASE,
)
"""An announcement of an example."""
_INDENT = 2
"""A line indented by at least so much belongs to the less indented line above it."""


def _announced(text: str, before: Reversible[str]) -> bool:
    """Whether an indented line belongs to an example that the sentence above it, further left, announces."""
    margin = len(text) - len(text.lstrip())
    if margin < _INDENT:
        return False
    for line in islice(reversed(before), _PIECE_LINES):
        left = len(line) - len(line.lstrip())
        if line.strip() and left < _INDENT:
            return _ANNOUNCES.search(line) is not None
    return False


_NAME_TAG = re.compile(r"\[[A-Za-z][\w.-]{0,40}\](?=\s|$)")
_BARE = re.compile(r"(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception): \S")


def _answered(text: str, before: Reversible[str]) -> bool:
    """Whether an exception without a traceback belongs to a question or an answer of a tagged chat."""
    if not _BARE.match(text):
        return False
    for line in islice(reversed(before), _PIECE_LINES):
        if "Traceback (" in line:
            return False
        if tag := _NAME_TAG.match(line):
            return _PIECE.match(line[tag.end() :].strip()) is not None
    return False


def is_repeated(text: str, before: Reversible[str]) -> bool:
    """Whether the lines above (`before`, oldest first) show that this one only repeats text from elsewhere.

    A shell's trace shows the command that prints the text, or a heading announces another run's lines, each with a mark.
    """
    if (
        _PIECE.match(_NAME_TAG.sub("", text, count=1) if _NAME_TAG.match(text) else text)
        or _continues_a_piece(text, before)
        or _answered(text, before)
        or _announced(text, before)
    ):
        return True
    words = text.strip()
    near: Iterable[str] = islice(reversed(before), _TRACE_LINES)
    if len(words) > _SHORTEST and any(words in line and _PRINTS.match(line) for line in near):
        return True
    if (above := next(iter(reversed(before)), None)) is not None and _CHAT_HEAD.match(above):
        return True
    if not (mark := _MARK.match(text)):
        return False
    block = mark[0].strip()
    head = next((line for line in reversed(before) if not line.lstrip().startswith(block)), "")
    if block == "|" and text[:1] == " " and _JUDGED_PROGRAM.search(head):
        return True
    tag = (mark["tag"] or "").strip()
    return (
        head.rstrip().endswith(":") and head.lstrip().startswith(tag) and _OTHER_RUN.search(head) is not None
    )


_TABLE_ROW = re.compile(
    r"^\s*\|\s.*\s\|\s*$|</\w{1,20}>\s*$"
    r"|^\s{0,8}(?:[A-Za-z/_-]{1,24} ){0,5}[A-Za-z/_-]{1,24}\s{2,20}\d[\d.,]{0,12}\s{2,20}\d[\d.,]{0,12}\s{2,20}\S"
)
"""A row between bars, the end of a page's element, a row of words with two columns of numbers behind them: data, whatever its last column."""
_ITEM = re.compile(r"\s*(?:[-*•]|\d{1,3}[.)]|\d{1,9}(?:\.\d{1,9})?)\s+")
"""The start of an entry of a list or of a column: a bullet, a number."""
_CHAT_HEAD = re.compile(
    r"\s*#{2,6}\s?(?:response|instruction|input|output|prompt|question|answer|assistant|user|human|context|example)\b|\s*<\|?(?:user|assistant|system|im_start)\b",
    re.IGNORECASE,
)


def is_chat_head(text: str) -> bool:
    """Whether the line is the heading of a question or an answer."""
    return _CHAT_HEAD.match(text) is not None


_SHORTEST = 8  # A line of at most so many characters may occur in a command by chance.


def without_quotations(text: str) -> str:
    """`text` with empty quotations; the quotation of an error's own report stays."""
    text = _EXAMPLE.sub("", text)

    def blank(found: re.Match[str]) -> str:
        return found[0] if _REPORTS.search(text[: found.start()]) else found[0][0] + found[0][-1]

    return _QUOTATION.sub(blank, text)


def foreign_words(text: str) -> int:
    """Number of words that do not occur in reports of errors."""
    words = [w.strip("()[]{},.;!") for w in _SPACED.findall(text) if _PLAIN.fullmatch(w)]
    return sum(w.lower() not in _REPORT for w in words)


def is_quoted(before: str) -> bool:
    """Whether a quotation opened in `before` is still open."""
    before = _REPR.sub("", before)
    if before.count('"') % 2 or before.count("`") % 2 or before.count("“") > before.count("”"):
        return True
    return re.search(r"(?:^|[\s(\[{=:,])'(?:[^']|(?<=\w)'(?=\w))*$", before) is not None


_EXCEPTION = re.compile(r"(?:[\w.]{1,80}(?:Error|Exception)): $")


def is_mentioned(text: str, start: int) -> bool:
    """Whether the error that begins at `start` is mentioned rather than reported: in quotes, in data, in a sentence."""
    before = text[:start]
    if key := _KEY.search(before):
        return key["key"].lower() not in _LOG_KEYS
    if _SPEAKER.search(before) or "?" in before or _ITEM.fullmatch(_EXCEPTION.sub("", before)):
        return True
    tail = re.split(r"[:\]>|]\s", before)[-1]
    return is_quoted(before) or foreign_words(tail) >= 3


def names_reporter(text: str, start: int) -> bool:
    """Whether an exception, a handler or a source file stands in front of the error that begins at `start`."""
    return _REPORTER.search(text[:start]) is not None


def is_reported(text: str, start: int, end: int, *, quoted: bool = False) -> bool:
    """Whether the text from `start` to `end` is the report of an error and no part of a sentence.

    Strict, for errors that only hardware can cause. `quoted`: the form itself puts the error between quotes.
    """
    before, behind = text[:start], text[end : end + 160]
    if _ITEM.fullmatch(before) or (is_mentioned(text, start) and not quoted):
        return False
    if _SPEAKER.search(before) or "?" in before or not _ENDS.search(before):
        return False
    if _SOURCE.match(before):
        # The message is a source file's; its sentence before the error does not count.
        before = re.split(r"(?<=:) ", before)[-1]
    sentence = (
        before
        if before.endswith((" ", "\t"))
        else before[: len(before.rstrip()) - len(before.split()[-1])]
        if before.strip()
        else ""
    )
    return not foreign_words(sentence) and foreign_words(behind) < 2 and "?" not in behind
