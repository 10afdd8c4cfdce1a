"""Text that is only shown, whose errors are not the job's.

Here-documents of a printed script, fenced blocks of Markdown, pages of Python's
help, another job's log below the traced command that prints it, questions to a model below their heading, turns of a chat between
their marks, messages of commits; help of options, tables of codes and counts, search patterns, pages of HTML.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Reversible
from functools import partial
from itertools import islice, pairwise

from probing_cluster.evidence import dates
from probing_cluster.evidence.joblog import labels, mention, progress

TRIGGERS = (
    "<<", "```", "Help on ", "+ tail ", "+ cat ", "+ head ", "+ grep ", "### ", "<|", "commit ", "[prompt]", "[question]", "[instruction]", "==> ",
    " see:", " get:", " hit:", " receive:", " encounter:", " into:", " like:", " this:", " as:", " these:",
    *(f"{age} {what}" for age in ("ast", "revious", "arlier", "old") for what in ("job", "run", "attempt", "log", "output")),
)  # fmt: skip
_OPENS = re.compile(
    r"(?:^|\s)\d?<<-?\s{0,2}(?P<quote>['\"]?)\\?(?P<word>[A-Za-z_]\w{0,31})(?P=quote)\s*(?:[|>&;].{0,200})?$"
)
_COMMAND = re.compile(
    r"\s{0,40}(?:\w{1,40}=\$\(|[|&;({]\s?)?(?:sudo |command |exec )?(?:cat|tee|python[\d.]{0,4}|perl|bash|sh|ed|ex|dd|ssh|read|while|sbatch|sqlite3|mysql|psql|gnuplot|octave|R|printf|:)\b"
)
_MAX_LINES, _SAMPLE_LINES, _SAMPLE_CHARS = 120, 60, 100
_HELP = re.compile(
    r"Help on (?:class|function|method|module|package|built-in function|_?\w{1,40} object)\b.{0,200}:$|Help on class \S"
)
_HELP_LINE = re.compile(r"\s|$|(?:class|def) |[A-Z ]{3,40}$|[\w.]{1,80}\(.{0,200}\)")
"""Lines of such a page: headings, signatures and indented text."""
_FENCE = re.compile(
    r"\s{0,12}```(?:\s?\{\s?\.?(?P<braced>[A-Za-z][\w+-]{0,20})?[^}\n]{0,80}\}|(?P<language>[A-Za-z][\w+-]{0,20}))?\s*$"
)
_OTHERS_LOG = re.compile(
    r"\s{0,8}\+{1,8} (?:tail(?!.{0,200}\s(?:-\w{0,8}[fF]\b|--follow))|cat|head|grep) .{0,300}\d{4,12}[\w.-]{0,40}\.(?:out|err|log|txt)\b"
)
"""A shell's trace of a command that prints a file named after a job's number. It is another job's: a job has no need to print its own output."""
_TRACED = re.compile(r"\s{0,8}\+{1,8} \S")
_QUESTION = re.compile(r"\s{0,4}#{2,6} ?(?:input|instruction|prompt|question|context)s?:\s*$", re.IGNORECASE)
_QUESTION_LINES = 12
_ANNOUNCES = re.compile(
    r"(?!.*\bfollowing\b).{0,300}\b(?:(?:(?:if|may|you)\b.{0,200}\b|an? (?:\w{1,20} ){0,2})(?:errors?|messages?|lines?|output) (?:such as|like)(?: this| these)?|you\b.{0,200}\b(?:see|get|hit|receive|encounter|run into)(?: something)?(?: like)?(?: this| these)?):$",
    re.IGNORECASE,
)
"""A sentence of a guide that announces an example of an error."""
_EXAMPLE_LINES = 3
_OF_RUN = re.compile(
    r"\[ {0,8}\d{1,9}\.\d{6}\] |(?P<launcher>(?:srun|slurmstepd\S{0,60}|mpi(?:run|exec)|prterun): )"
)
"""A kernel's or a launcher's line; an example may begin with the latter."""
_ANSWER = re.compile(r"\s{0,4}#{2,6} ?\w|-{3,}|={3,}")
"""A line that ends the text below such a heading."""
_TURN = re.compile(r".{0,200}<\|(?:im_start|start_header_id|start_of_turn)\|>")
_TURN_ENDS = re.compile(r"<\|(?:im_end|eot_id|end_of_turn|end|endoftext)\|>\s*$")
"""The marks that models' chats have between their turns."""
_CLOSING_QUOTE = re.compile(r"['\"]{1,3}[,)\]}]{0,3}")
"""Ends a prompt that a server prints: its last turn is the model's, which has not begun."""
_SAMPLE = re.compile(
    r"(?:\([\w.:]{1,64} pid=\d{1,10}[^)\n]{0,80}\) )?\[(?:(?P<opens>prompt|question|instruction)|(?P<ends>score|reward)s?)\](?: |$)"
)
"""A question to a model, its answer and its score, as trainers print samples of their rollouts."""
_COMMIT = re.compile(r"commit [0-9a-f]{40}(?: \([^)\n]{1,200}\))?$")
_COMMIT_LINE = re.compile(r"(?:Author|Commit|Merge|\w{0,6}Date): |\s{4}|\s*$")
"""What `git log` prints of a commit below its number: its fields and its message, indented."""
_SHOWN = frozenset(
    {None, "bash", "sh", "shell", "console", "text", "txt", "plaintext", "output", "log", "shell-session"}
)
"""Languages of fences around the output of programs. Code in another language may come from a model and be cut off by the program's own failure."""


class HereDocument:
    """Follows the one that is open."""

    def __init__(self) -> None:
        self._began, self._word, self._most = 0, "", _MAX_LINES
        self._last = 0
        """The last line that was not empty; the reader skips empty lines."""
        self._in_code = False
        """Inside a fence around code: the next bare one ends it."""

    def inside(self, line: int) -> bool:
        """Whether `line`, the one read or the next, may stand in one."""
        return 0 < self._began < line <= self._began + self._most

    def quotes(self, line: int, text: str) -> bool:
        """Whether the line stands in one; a line that opens one does not."""
        over, empty = _OVER.get(self._word), line > self._last + 1
        if self._word == "example" and self._last == self._began:
            over = partial(_is_of_run, is_first=True)
        self._last = line
        ends = empty and line > self._began + _EMPTY_LINES.get(self._word, _MAX_LINES)
        if over is not None and (over(text) or ends):
            self._open(0, "")
        if self.inside(line):
            if (
                text.strip() == self._word
                or (self._word == "turn" and _TURN_ENDS.search(text))
                or (self._word == "sample" and (sample := _SAMPLE.match(text)) and sample["ends"])
            ):
                self._began = 0
            return True
        if found := _FENCE.match(text) if "```" in text else None:
            language = found["language"] or found["braced"]
            code = language not in _SHOWN
            if not code and not (self._in_code and language is None):
                self._open(line, "```")
            self._in_code = code
            return True
        if text.startswith("Help on ") and _HELP.match(text):
            self._open(line, "help")
            return True
        if text.endswith(":") and _ANNOUNCES.match(text) and mention.foreign_words(text) >= _SENTENCE_WORDS:
            self._open(line, "example", _EXAMPLE_LINES)
            return False
        if "### " in text and _QUESTION.match(text):
            self._open(line, "question", _QUESTION_LINES)
            return False
        if text.startswith("commit ") and _COMMIT.match(text):
            self._open(line, "commit")
            return True
        if "<|" in text and _TURN.match(text):
            self._open(0 if _TURN_ENDS.search(text) else line, "turn")
            return True
        if "[" in text[:_SAMPLE_CHARS] and (sample := _SAMPLE.match(text)) and sample["opens"]:
            self._open(line, "sample", _SAMPLE_LINES)
            return True
        if "+ " in text and _OTHERS_LOG.match(text):
            self._open(line, "log")
            return False
        found = _OPENS.search(text) if "<<" in text and _COMMAND.match(text) else None
        self._open(line if found else 0, found["word"] if found else "")
        return False

    def _open(self, line: int, word: str, most: int = _MAX_LINES) -> None:
        self._began, self._word, self._most = line, word, most


_BOLD = re.compile(r"^\*\*(?=[^\s*])([^*]+)\*\*$")


_OF_LABEL = re.compile(r"^\w{0,8}\]: ?(?=[\w.]{1,100}(?:Error|Exception): )")
"""The end of a rank's label, in which the copied part began."""


class Copied:
    """Removes the fence or the quotation marks of a log that was copied from a page or a mail."""

    def __init__(self) -> None:
        self._marked = self._fenced = False
        self._closed = 0

    def plain(self, line: int, text: str) -> str:
        """The line without them; its first line shows which there are."""
        if line == 1:
            text = text.removeprefix("\ufeff")
            text = _OF_LABEL.sub("", text)
            self._marked, self._fenced = text.startswith("> "), text.startswith("```")
            if text.count("`") == 1:  # set as code over several lines
                text = text.removeprefix("`")
            return "" if self._fenced else text.removeprefix("> ")
        if self._fenced and text.strip() == "```":
            self._fenced, self._closed = False, line
            return ""
        # A session of R shows its commands behind the same mark, and their output without one.
        self._marked &= not text.strip() or text.startswith(">")
        return _BOLD.sub(r"\1", text.removeprefix("> ")) if self._marked else text

    def left(self) -> bool:
        """True once, at the first finding after the closing fence: the fenced text was a quotation."""
        closed, self._closed = self._closed, 0
        return closed > 0


def _is_of_run(text: str, *, is_first: bool = False) -> bool:
    """Whether the line below such a sentence is the job's own output; `is_first`: the first one below it."""
    if text.startswith("Traceback (") or dates.match_length(text.lstrip("[(")) or progress.is_progress(text):
        return True
    found = _OF_RUN.match(text)
    own = found is not None and not (is_first and found["launcher"])
    return own or labels.bare(0, text).rank is not None


def _ends_sample(text: str) -> bool:
    """Whether the line is the job's own output. A traceback without frames may be the model's."""
    if text.startswith("Traceback ("):
        return False
    return text.lstrip().startswith('File "') or _is_of_run(text)


_OVER: dict[str, Callable[[str], bool]] = {
    "help": lambda text: _HELP_LINE.match(text) is None,
    "question": lambda text: _ANSWER.match(text) is not None,
    "log": lambda text: _TRACED.match(text) is not None,
    "example": lambda text: _is_of_run(text),
    "sample": lambda text: _ends_sample(labels.bare(0, text).text),
    "commit": lambda text: _COMMIT_LINE.match(text) is None,
    "turn": lambda text: _CLOSING_QUOTE.fullmatch(text.strip()) is not None,
}
"""How texts without an end marker of their own end; a here-document's marker stands in the script."""
_EMPTY_LINES = {"question": 0, "example": 2}
"""Texts that end at an empty line, and how many lines below their heading one may be part of them."""


_OPTION = re.compile(
    r"\s{1,8}-{1,2}[A-Za-z][\w-]{0,40}(?:,? -{1,2}[A-Za-z][\w-]{0,40})?(?:[ =][A-Z{\[<]\S{0,60})?(?:\s{2,40}\S|\s*$)"
)
"""An option in a program's help: its names, perhaps a value, and its description after blanks."""
_DESCRIPTION_INDENT = 10
_NEAR_LINES = 6
_CODE_ROW = re.compile(r"\s{1,8}(?P<code>\d{1,3})\s{2,12}\S")
_LEAST_ROWS = 2
_ESCAPE = r"\\(?:[().\[\]{}+*?|^$]|[dsw](?![A-Za-z]))"
_PATTERN = re.compile(
    rf"{_ESCAPE}.{{0,400}}(?:{_ESCAPE}|\||\.\*)|(?:\||\.\*).{{0,400}}{_ESCAPE}|\S\|[^|]*\.\*|\.\* .{{0,400}}\|"
)
"""A regular expression: the line shows a search pattern."""
_SOURCE_ARROW = re.compile(r"\s{0,6}-{1,6}> ?\d{1,6}\s")
"""The line of source at which IPython's traceback points; the exception stands below the frames."""
_PAGE_ITEM = re.compile(
    r"\s{0,12}(?:[-*•]|\d{1,2}[.)])\s+(?:\*\*)?`[^`]{2,200}`(?:\*\*)?,? (?:[a-z]+[,.]? ){3}"
)
"""An entry of a page's list that begins with words set as code and goes on as a sentence."""

_LABELLED = re.compile(
    r"\s{0,12}(?:[-*•]\s+)?\*\*[^*\n]{2,60}\*\*\s?:|\s{0,12}`[^`\n]{8,2000}`\s*$|_No response_\s*$"
)
"""A bold label, or a line of code alone: parts of a page."""
_COUNTED = re.compile(r".{8,400}\s{2,60}\d[\d.,]{0,14}\s{2,40}\d[\d.,]{0,14}\s?%?\s*$")
"""A line that ends with two columns of numbers, such as counts."""
_BARE = re.compile(r"\s{8,60}(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception): \S")
_WENT_WRONG = re.compile(
    r"error|exception|fail|caus|reason|traceback|raised|stderr|output|abort|fatal", re.IGNORECASE
)
_EXAMPLE = re.compile(r"\b(?:example|looks? like|reads|would (?:print|show|see))\b", re.IGNORECASE)
_PAGE_BEGINS, _PAGE_ENDS = (
    re.compile(r"\s{0,8}<(?:!DOCTYPE html|html)\b", re.IGNORECASE),
    re.compile(r"</html>", re.IGNORECASE),
)
_PAGE_LINES = 2_000
_SENTENCE_WORDS = 5


class Pages:
    """Follows the pages of HTML that a program prints."""

    def __init__(self) -> None:
        self._began = 0

    def inside(self, line: int, text: str) -> bool:
        """Whether the line, the next one, belongs to a page."""
        if _PAGE_BEGINS.match(text):
            self._began = line
        if not self._began or line - self._began > _PAGE_LINES:
            self._began = 0
            return False
        if _PAGE_ENDS.search(text):
            self._began = 0
        return True


def shows_a_traceback(before: Reversible[str]) -> bool:
    """Whether the sentence above the head of a traceback announces an example, as guides and chats do."""
    above = next((line for line in islice(reversed(before), _NEAR_LINES) if line.strip()), "")
    if not (_EXAMPLE.search(above) and mention.foreign_words(above) >= _SENTENCE_WORDS):
        return False
    return above.rstrip().endswith((":", "reads", "like"))


_NUMBERED = re.compile(r"(?P<margin>\s{0,12})(?P<n>\d{1,4})[.)]\s")


def _is_numbered(text: str, before: Reversible[str]) -> bool:
    """Whether the line is at least the third entry of a list that is numbered line by line."""
    found = _NUMBERED.match(text)
    if found is None:
        return False
    above = [_NUMBERED.match(line) for line in islice(reversed(before), 2)]
    wanted = [(found["margin"], int(found["n"]) - n) for n in (1, 2)]
    return [(m["margin"], int(m["n"])) for m in above if m] == wanted


_WIDE_ROW = re.compile(r"\S[^|]{8,400}(?<![#:=\s])\s{12,200}\d{2,9}$")
_ROW_OF_COUNTS = re.compile(r"\S[^|]{8,400}(?<![#:=\s])\s{3,200}\d{1,9}$")
"""A value and, in a column of its own, how often it came: what pandas prints of `value_counts()`."""
_NAMED_NUMBER = re.compile(
    r"\b(?:line|unit|io?err?|iostat|stat(?:us)?|code|rank|step|index|number|no\.?|row|column|node|element|task|process(?:or)?|cell|point|level|layer|file|record|at|of|to|is|was|than)\s{12,200}\d{2,9}$",
    re.IGNORECASE,
)
"""A number that the word before it names: Fortran writes it as wide as its type."""


def is_shown(text: str, before: Reversible[str]) -> bool:
    """Whether the line explains an error rather than reports one; `before`: the lines above it, oldest first."""
    if _is_numbered(text, before):
        return True
    if not any(sign in text for sign in ("  ", "\\", ".*", "`", "**", "_No ")):
        return False
    if any(form.match(text) for form in (_OPTION, _PAGE_ITEM, _LABELLED, _SOURCE_ARROW)) or _PATTERN.search(
        text
    ):
        return True
    if (_WIDE_ROW.match(text) and not _NAMED_NUMBER.search(text)) or (
        _ROW_OF_COUNTS.match(text) and _ROW_OF_COUNTS.match(next(iter(reversed(before)), ""))
    ):
        return True
    if _COUNTED.match(text) and mention.foreign_words(text) < _SENTENCE_WORDS:
        return True
    if _BARE.match(text) and _is_announced(text, before):
        return True
    return _describes_an_option(text, before) or _is_of_a_table_of_codes(text, before)


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def _is_announced(text: str, before: Reversible[str]) -> bool:
    """Whether an indented exception stands below a heading and has no traceback above it."""
    for line in islice(reversed(before), _NEAR_LINES):
        if "Traceback (" in line or 'File "' in line:
            return False
        if line.strip() and _indent(line) < _indent(text):
            return line.rstrip().endswith(":") and _WENT_WRONG.search(line) is None
    return False


def _describes_an_option(text: str, before: Reversible[str]) -> bool:
    """Whether the line continues the description of an option, indented as help is."""
    if _indent(text) < _DESCRIPTION_INDENT:
        return False
    for line in islice(reversed(before), _NEAR_LINES):
        if _indent(line) < _DESCRIPTION_INDENT:
            return _OPTION.match(line) is not None
    return False


def _is_of_a_table_of_codes(text: str, before: Reversible[str]) -> bool:
    """Whether the line explains an exit code below others: numbers that grow, but not one by one as line numbers do."""
    codes = []
    for line in (text, *islice(reversed(before), _NEAR_LINES)):
        if not (row := _CODE_ROW.match(line)):
            break
        codes.append(int(row["code"]))
    steps = [later - earlier for later, earlier in pairwise(codes)]
    return len(steps) >= _LEAST_ROWS and min(steps) > 0 and max(steps) > 1


_OLD = r"(?:last|previous|earlier|old)"
_LOG = r"(?:logs?|log ?file|output)"
_RUN = r"(?:jobs?|runs?|attempts?)"
_OLDER_LOG = re.compile(
    rf"\W{{0,12}}(?:\w{{1,20}}\W{{1,3}}){{0,4}}?(?:(?:tail|end|lines|{_LOG})(?: output)? (?:of|from|in) (?:the |an |my |its )?{_OLD} {_RUN}(?:['\u2019]s)?(?: {_LOG})?"
    rf"|{_OLD} (?:{_RUN}(?:['\u2019]s)? )?{_LOG}(?: (?:of|from) .{{1,60}})?)"
    r"(?: \([^)\n]{1,60}\)| \S{0,12}\d\S{0,12})?(?:\s?:|\s?[=#*-]{2,})\s*$"
    r"|==> (?:\S{0,200}(?<![A-Za-z]))?(?:old|last|prev|previous)(?![A-Za-z])\S{0,100} <==$",
    re.IGNORECASE,
)
"""A heading of an earlier run's log that the script prints."""
_WORKS_ON_OLD = re.compile(
    r"(?!==>)\W{0,12}+(?:(?<=\[)[^\]\n]{1,40}\])?+.*?\b(?:no|not|without|found|rm|mv|cp|diff|us(?:e|es|ed|ing)|back(?:ing|ed)?[ -]?up|initial"
    r"|(?:remov|delet|copy|copi|mov|renam|resum|restor|rotat|append|compar|skip|(?:over)?writ|sav|stor|archiv|compress|g?zip|pars|ignor|merg|truncat|clean|load|read|(?:re)?start|continu|import|upload|sync)\w{0,5})\b(?!.{0,200}(?:[^\w\s'\"/.-]|[.-]\s|\b(?:lines|tail|end|contents?)\b))",
    re.IGNORECASE,
)
"""What a script does with an earlier log instead: a verb that has the log as its object, and is no sentence of its own."""
_OLD_WORD = re.compile(rf"{_OLD}|prev", re.IGNORECASE)
"""A word of every such heading: most lines have none."""
_NEXT_PART = re.compile(
    r"\s{0,4}(?:={2,}>? ?\w|#{2,} ?\w|-{3,} ?\w.{0,100}-{3,}$|\+{1,4} \S)|.{0,20}\bend of .{0,30}\b(?:log|output)\b",
    re.IGNORECASE,
)


class OlderLog:
    """An earlier run's log below its heading. Nothing marks its last line, so the job's own words may follow unnoticed."""

    def __init__(self) -> None:
        self._began = 0

    def read(self, line: int, text: str) -> None:
        """A line of the log, in order."""
        old = _OLD_WORD.search(text)
        if old and _OLDER_LOG.match(text) and not _WORKS_ON_OLD.match(text, 0, old.start()):
            self._began = line
        elif self._began and _NEXT_PART.match(text):
            self._began = 0

    def inside(self, line: int) -> bool:
        """Whether the line may be of such a log."""
        return 0 < self._began < line <= self._began + _MAX_LINES
